import { ERRORS, sendError } from "../../exchange.ts";
import * as answer from "../../openapi/answers.ts";
import { TEXT } from "../../openapi/schemas.ts";
import { route } from "../../routes.ts";
import type { Console } from "../operation.ts";
import { sendAsset } from "./page.ts";

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
