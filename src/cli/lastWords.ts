import { errorText } from "../model/errors.ts";
import { escapeControls } from "../model/unseen.ts";
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
