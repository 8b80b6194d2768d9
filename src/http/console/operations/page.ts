import type { IncomingMessage, ServerResponse } from "node:http";
import { TEXT } from "../../../model/described.ts";
import { ERRORS, send, sendError } from "../../exchange.ts";
import * as answer from "../../openapi/answers.ts";
import { route } from "../../routes.ts";
import type { Asset } from "../assets.ts";
import type { Console } from "../operation.ts";

export const showPage = ({ files }: Console) =>
  route(
    "console",
    {
      summary: "The console",
      description:
        "The page for operators. It holds no data: it reads the admin routes with the session of its reader.",
      answers: [answer.plain("The page.", "text/html; charset=utf-8")],
    },
    async (req, res) => sendAsset(req, res, files.page, "no-store"),
  );

/** The page's own addresses are relative to `/console`; so is this one, which keeps the path prefix of a proxy. */
export const leadToPage = () =>
  route(
    "console_slash",
    {
      summary: "The console, with a slash",
      description: "Leads to the page.",
      isAlias: true,
      answers: [],
    },
    async (_req, res) => {
      res.setHeader("Location", "../console");
      send(res, 308, null, "");
    },
  );

const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join("; ");

/** Sends a file. @param caching its `Cache-Control` */
function sendAsset(req: IncomingMessage, res: ServerResponse, asset: Asset, caching: string): void {
  const isGzipped = /\bgzip\b/.test(String(req.headers["accept-encoding"] ?? ""));
  const bytes = isGzipped ? asset.gzipped : asset.bytes;
  if (isGzipped) res.setHeader("Content-Encoding", "gzip");
  res.writeHead(200, {
    "Content-Type": asset.type,
    "Content-Length": bytes.length,
    "Cache-Control": caching,
    Vary: "Accept-Encoding",
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
  });
  res.end(req.method === "HEAD" ? undefined : bytes);
}

export const showAsset = ({ files }: Console) =>
  route(
    "console_asset",
    {
      summary: "A file of the console",
      description: "Scripts and styles, whose names change with their content.",
      parameters: [answer.inPath("file", "Name of the file.", TEXT)],
      answers: [
        answer.plain("A script.", "text/javascript; charset=utf-8"),
        answer.plain("A style sheet.", "text/css; charset=utf-8"),
        answer.error(404, "No such file.", ERRORS.notFound),
      ],
    },
    async (req, res, { file = "" }) => {
      const asset = files.assets.get(file);
      if (asset === undefined) sendError(res, 404, ERRORS.notFound);
      // Its name changes with its content.
      else sendAsset(req, res, asset, "public, max-age=31536000, immutable");
    },
  );
