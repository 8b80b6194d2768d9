import { readFileSync, realpathSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { referencePage } from "../config/reference.ts";

/** The file of the repository that is made from the code, below its root. */
const REFERENCE = "docs/configuration.md";

/** Writes the reference page of the configuration, or with `--check` fails if the page differs from the code. */
function main(args: readonly string[]): void {
  const present = readFileSync(REFERENCE, "utf8");
  const current = referencePage(present);
  if (!args.includes("--check")) {
    writeFileSync(REFERENCE, current);
    process.stdout.write(`wrote ${REFERENCE}\n`);
  } else if (present !== current) {
    process.stderr.write(`out of date: ${REFERENCE}\nRun "npm run generate" and commit the result.\n`);
    process.exitCode = 1;
  }
}

const script = process.argv[1];
// npm runs scripts in the package's root, which holds the page.
if (script !== undefined && realpathSync(script) === fileURLToPath(import.meta.url)) main(process.argv.slice(2));
