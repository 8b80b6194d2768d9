import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

/** A file of the console as it is served. */
export interface Asset {
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
