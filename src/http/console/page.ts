import { readdirSync, readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { TEXT } from "../../model/described.ts";
import { ERRORS, send, sendError } from "../exchange.ts";
import * as answer from "../openapi/answers.ts";
import { httpRoute } from "../routes.ts";

interface Asset {
  readonly type: string;
  readonly bytes: Buffer;
  readonly gzipped: Buffer;
}

/** The page, and the files that it loads by name. */
export interface ConsoleFiles {
  readonly page: Asset;
  readonly assets: ReadonlyMap<string, Asset>;
}

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
};

/** Reads the files that `npm run build` makes. @throws Error that says what to do when they are missing */
export function readConsoleFiles(folder = FOLDER): ConsoleFiles {
  try {
    const assets = new Map(readdirSync(folder).map((name) => [name, readAsset(path.join(folder, name))]));
    const page = assets.get(PAGE);
    if (page === undefined) throw new Error(`${PAGE} is missing`);
    assets.delete(PAGE);
    return { page, assets };
  } catch (error) {
    throw new Error(
      `the files of the console cannot be read (${folder}): run npm run build, or set admin.console to false`,
      {
        cause: error,
      },
    );
  }
}

const PAGE = "index.html";
/** `dist/console`, from `dist/src/http/console`. */
const FOLDER = fileURLToPath(new URL("../../../console", import.meta.url));

function readAsset(file: string): Asset {
  const bytes = readFileSync(file);
  return {
    type: TYPES[path.extname(file)] ?? "application/octet-stream",
    bytes,
    gzipped: gzipSync(bytes, { level: 9 }),
  };
}

export const showPage = (files: ConsoleFiles) =>
  httpRoute(
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
  httpRoute(
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

export const showAsset = (files: ConsoleFiles) =>
  httpRoute(
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
