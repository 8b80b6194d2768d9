import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

/** Builds the console into `dist/console`: one script, one style sheet, and the page that loads them. */

const SOURCES = fileURLToPath(new URL(".", import.meta.url));
const OUTPUT = path.join(SOURCES, "../../dist/console");

const { metafile } = await build({
  absWorkingDir: SOURCES,
  entryPoints: { app: "main.tsx" },
  outdir: OUTPUT,
  entryNames: "[name]-[hash]",
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  metafile: true,
});

const files = Object.keys(metafile.outputs).map((file) => path.basename(file));
const nameOf = (extension) => {
  const name = files.find((file) => file.endsWith(extension));
  if (name === undefined) throw new Error(`the build of the console made no ${extension} file`);
  return name;
};
const page = readFileSync(path.join(SOURCES, "index.html"), "utf8")
  .replace("{{script}}", nameOf(".js"))
  .replace("{{style}}", nameOf(".css"));
mkdirSync(OUTPUT, { recursive: true });
writeFileSync(path.join(OUTPUT, "index.html"), page);
