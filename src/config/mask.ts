import type { SchemaNode } from "../model/schema.ts";
import { maskUrl, maskUrls, passwordsInUrl, passwordsInUrls, Secret } from "../model/secret.ts";
import { isCredentialHeader } from "../model/text.ts";
import { rootSchema } from "./schema/index.ts";

const CREDENTIAL_NAME =
  /authori[sz]|authent|(?:^|[-_])auth(?:[-_]|$)|cookie|token|secret|passw|pwd|api[-_]?key|assertion|signature|credential/i;

/** Whether a header or form parameter of this name carries a credential, such as `Authorization`. */
function isCredentialName(name: string): boolean {
  return CREDENTIAL_NAME.test(name) || isCredentialHeader(name.toLowerCase());
}

/**
 * A value for a message or a printed configuration, with credentials masked.
 *
 * @param node the schema of the value
 * @param name the last name of its key path
 */
export function masked(node: SchemaNode, name: string | number | undefined, value: unknown): unknown {
  if (value instanceof Secret) return value.toString();
  if (typeof value !== "string") return value;
  // A node without a description is a value of a map with names from the user: the name decides.
  const credential =
    node.secret === true || (node.description === undefined && typeof name === "string" && isCredentialName(name));
  if (credential) return new Secret(value).toString();
  return node.url === true ? maskUrl(value) : maskUrls(value);
}

/** Names a found value in an error message. @returns such as `"abc"`, `12`, `a list`; secrets masked, long text cut */
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

/** Maps with names from the user: the name decides whether a value is a credential. */
const NAMED_MAPS = new Set(["headers", "extraParams"]);
/** Names of the keys that take a URL. */
const URL_KEYS: ReadonlySet<string> = new Set(urlKeys(rootSchema));

function urlKeys(node: SchemaNode): string[] {
  const children = [...Object.values(node.kinds ?? {}), node.additionalProperties, node.items];
  const own = Object.entries(node.properties ?? {});
  return [
    ...own.flatMap(([key, property]) => [...(property.url === true ? [key] : []), ...urlKeys(property)]),
    ...children.flatMap((child) => (child === undefined ? [] : urlKeys(child))),
  ];
}

/**
 * Every secret value of a configuration, for redaction: secrets, passwords inside URLs (as written and
 * percent-decoded), static headers and form parameters with the name of a credential, and their Basic authentication.
 *
 * @returns the distinct values, longest first, so that replacing them in turn leaves no part of one
 */
export function secretsOf(config: unknown): string[] {
  const values = new Set(collect(config, false));
  values.delete("");
  return [...values].sort((a, b) => b.length - a.length);
}

/** The secrets of a configuration that were read from files. */
export function fileSecretsOf(config: unknown): readonly (Secret & { readonly file: string })[] {
  if (config instanceof Secret) return config.file === undefined ? [] : [config as Secret & { readonly file: string }];
  if (typeof config !== "object" || config === null) return [];
  return Object.values(config).flatMap(fileSecretsOf);
}

function collect(value: unknown, credential: boolean): string[] {
  if (value instanceof Secret) return variants(value.reveal());
  if (typeof value === "string") return credential ? variants(value) : passwordsInUrls(value);
  if (Array.isArray(value)) return value.flatMap((item) => collect(item, false));
  if (typeof value !== "object" || value === null) return [];
  const entries = Object.entries(value).flatMap(([key, item]) =>
    NAMED_MAPS.has(key) && typeof item === "object" && item !== null
      ? Object.entries(item).flatMap(([name, text]) => collect(text, isCredentialName(name)))
      : URL_KEYS.has(key) && typeof item === "string"
        ? passwordsInUrl(item)
        : collect(item, false),
  );
  return [...entries, ...basicCredentials(value)];
}

/** A header such as `Bearer abc` is a secret as a whole, and so is the part behind the scheme. */
function variants(secret: string): string[] {
  const afterScheme = /^[A-Za-z][\w-]* +(\S.*)$/.exec(secret)?.[1];
  return afterScheme === undefined ? [secret] : [secret, afterScheme];
}

function basicCredentials(block: object): string[] {
  const { kind, username, password } = block as { kind?: unknown; username?: unknown; password?: unknown };
  if (kind !== "basic" || typeof username !== "string" || !(password instanceof Secret)) return [];
  return [Buffer.from(`${username}:${password.reveal()}`, "utf8").toString("base64")];
}
