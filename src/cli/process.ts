import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { errorText } from "../model/errors.ts";
import { escapeControls } from "../model/text.ts";
import type { SecretMasker } from "../ports/secretMasker.ts";

let secrets: Pick<SecretMasker, "mask"> | undefined;

/** Says what to mask in {@link lastWords}, once a configuration is loaded. */
export function maskLastWords(masker: Pick<SecretMasker, "mask">): void {
  secrets = masker;
}

/** What the process says of the error that ends it, on standard error and not in the log. */
export function lastWords(error: unknown): string {
  const text = errorText(error);
  return escapeControls(secrets?.mask(text, false) ?? text);
}

/** The version in the package's own `package.json`: beside `roles` in the repository, above `dist` in the package. */
export const VERSION: string = (() => {
  for (let folder = dirname(fileURLToPath(import.meta.url)); ; folder = dirname(folder)) {
    try {
      const manifest: unknown = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
      return String((manifest as { version?: unknown }).version);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT" || dirname(folder) === folder) throw error;
    }
  }
})();
