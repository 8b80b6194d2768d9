import { isCredentialHeader } from "../core/receipt/credentialHeaders.ts";
import { maskUrl, maskUrls } from "../model/maskUrl.ts";
import type { SchemaNode } from "../model/schema.ts";
import { Secret } from "../model/secret.ts";

const CREDENTIAL_NAME =
  /authori[sz]|authent|(?:^|[-_])auth(?:[-_]|$)|cookie|token|secret|passw|pwd|api[-_]?key|assertion|signature|credential/i;

/** Whether a name in a map of headers or form parameters is one that carries a credential, such as `Authorization`. */
export function isCredentialName(name: string): boolean {
  return CREDENTIAL_NAME.test(name) || isCredentialHeader(name.toLowerCase());
}

/**
 * A value as it may be shown in a message or a printed configuration.
 *
 * @param node the schema of the value
 * @param name the last name of its key path
 * @param value what was found
 * @returns text or the plain value, with credentials masked
 */
export function masked(node: SchemaNode, name: string | number | undefined, value: unknown): unknown {
  if (value instanceof Secret) return value.toString();
  if (typeof value !== "string") return value;
  // A node without a description is the value of a map whose names come from the user: only the name can tell.
  const credential =
    node.secret === true || (node.description === undefined && typeof name === "string" && isCredentialName(name));
  if (credential) return new Secret(value).toString();
  return node.url === true ? maskUrl(value) : maskUrls(value);
}

/**
 * Names a found value in an error message.
 *
 * @returns such as `"abc"`, `12`, `a list`; secrets masked, long text cut
 */
export function found(node: SchemaNode, name: string | number | undefined, value: unknown): string {
  if (value === undefined || value === null) return "nothing";
  if (Array.isArray(value)) return "a list";
  if (value instanceof Map) return "a mapping";
  const shown = masked(node, name, value);
  if (typeof shown === "string") {
    const text = shown.length > 120 ? `${shown.slice(0, 117)}...` : shown;
    return value === shown || node.secret !== true ? JSON.stringify(text) : text;
  }
  return typeof shown === "object" ? "a mapping" : String(shown);
}
