import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { toolPath } from "../describeWithTools.ts";
import type { Manifest } from "./manifests.ts";

/** One process for all documents: loading the schemas takes longer than using them. */
const SCRIPT = `
import functools, json, sys, kubernetes_validate as kv, kubernetes_validate.utils as internals
# It reads megabytes of definitions again for each document.
internals.schema_contents = functools.lru_cache(maxsize=None)(internals.schema_contents)
asked = json.load(sys.stdin)
for version in asked["versions"]:
    for document in asked["documents"]:
        try:
            kv.validate(document["manifest"], version, strict=True)
        except kv.ValidationError as error:
            where = "/".join(str(part) for part in error.path)
            print(json.dumps("%s, Kubernetes %s: at %s: %s" % (document["name"], version, where, error.message)))
        except kv.SchemaNotFoundError as error:
            print(json.dumps("%s, Kubernetes %s: there is no schema of %s" % (document["name"], version, document["manifest"]["kind"])))
`;

export interface NamedManifest {
  /** What a message calls it. */
  readonly name: string;
  readonly manifest: Manifest;
}

/**
 * Holds objects against the strict schemas of Kubernetes, which refuse unknown keys.
 *
 * @param versions such as `1.34`
 * @returns what is wrong; empty when nothing is
 */
export async function schemaFaults(
  documents: readonly NamedManifest[],
  versions: readonly string[],
): Promise<string[]> {
  const child = spawn(toolPath("kubernetes-validate"), ["-c", SCRIPT], { stdio: ["pipe", "pipe", "pipe"] });
  child.stdin.end(JSON.stringify({ documents, versions }));
  const [output, errors, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "close")]);
  if (code !== 0) throw new Error(`kubernetes-validate ended with ${code}: ${errors}`);
  return output
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as string);
}
