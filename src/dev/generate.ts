import { mkdirSync, readFileSync, realpathSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { jsonSchema } from "../config/jsonSchema.ts";
import { referencePage } from "../config/reference.ts";

/** A file of the repository that is made from the code. */
interface Artefact {
  /** Path below the repository's root. */
  readonly path: string;
  /** @param present what the file holds; undefined when there is none */
  render(present: string | undefined): string;
}

/** Every generated file. */
export const ARTEFACTS: readonly Artefact[] = [
  { path: "docs/configuration.md", render: referencePage },
  { path: "docs/config.schema.json", render: () => `${JSON.stringify(jsonSchema(), null, 2)}\n` },
];

/** Writes all generated files below a directory. */
export function generate(root: string, artefacts: readonly Artefact[] = ARTEFACTS): void {
  for (const artefact of artefacts) {
    const file = path.join(root, artefact.path);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, artefact.render(read(file)));
  }
}

/** The paths of generated files below a directory that are missing or differ from what the code makes. */
export function staleArtefacts(root: string, artefacts: readonly Artefact[] = ARTEFACTS): string[] {
  return artefacts
    .filter((artefact) => {
      const present = read(path.join(root, artefact.path));
      return present !== artefact.render(present);
    })
    .map(({ path }) => path);
}

function read(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return undefined;
  }
}

function main(args: readonly string[], root: string): void {
  if (!args.includes("--check")) {
    generate(root);
    process.stdout.write(`${ARTEFACTS.map((artefact) => `wrote ${artefact.path}\n`).join("")}`);
    return;
  }
  const stale = staleArtefacts(root);
  if (stale.length === 0) return;
  process.stderr.write(`out of date: ${stale.join(", ")}\nRun "npm run generate" and commit the result.\n`);
  process.exitCode = 1;
}

const script = process.argv[1];
// npm runs scripts in the package's root, which is where the files belong.
if (script !== undefined && realpathSync(script) === fileURLToPath(import.meta.url))
  main(process.argv.slice(2), process.cwd());
