import { isIP } from "node:net";
import { compileTopicPattern } from "../core/delivery/routes.ts";
import { parseAddressTemplate, parseRoutingKeyTemplate, parseTopicTemplate } from "../core/delivery/template.ts";
import { parseJsonPath } from "../core/receipt/jsonPath.ts";
import { compileExpression } from "../core/transform/expression.ts";
import type { Syntax } from "../model/schema.ts";

/** Gives what is wrong with a text, for the end of a sentence; undefined when nothing is. */
type SyntaxCheck = (text: string) => string | undefined;

const CHECKS: Readonly<Record<Syntax, SyntaxCheck>> = {
  notBlank: (text) => (text.trim() === "" ? "must not be blank" : undefined),
  identifier: pattern(/^[A-Za-z_][A-Za-z0-9_]*$/, "a letter or _ first, then letters, digits and _"),
  bindAddress,
  captureName: pattern(
    /^[a-z][a-z0-9_]{0,62}$/,
    "lower-case letters, digits and _, a letter first, at most 63 characters",
  ),
  headerName: pattern(/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/, "a header name without spaces and colons"),
  httpUrl,
  urlPath,
  jsonPath: parsed("no definite JSONPath", parseJsonPath),
  topicPattern: parsed("no topic pattern", compileTopicPattern),
  topicTemplate: parsed("no topic template", parseTopicTemplate),
  address: parsed("no address template", parseAddressTemplate),
  routingKey: parsed("no routing key template", parseRoutingKeyTemplate),
  expression: parsed("does not compile", compileExpression),
};

/**
 * Checks the text of one value.
 *
 * @param syntax what it is to be, from its schema
 * @param text the value
 * @returns what is wrong, without the value itself (it may hold a password); undefined when nothing is
 */
export function syntaxError(syntax: Syntax, text: string): string | undefined {
  return CHECKS[syntax](text);
}

function pattern(expression: RegExp, expected: string): SyntaxCheck {
  return (text) => (expression.test(text) ? undefined : `expected ${expected}`);
}

function parsed(what: string, parse: (text: string) => unknown): SyntaxCheck {
  return (text) => {
    try {
      parse(text);
      return undefined;
    } catch (error) {
      return `${what}: ${(error as Error).message}`;
    }
  };
}

/** What a server can listen on: an IP address, of IPv6 in brackets or without, or a host name. */
function bindAddress(text: string): string | undefined {
  const bare = text.startsWith("[") && text.endsWith("]") ? text.slice(1, -1) : text;
  if (isIP(bare) !== 0 || (bare === text && /^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$/.test(text))) return undefined;
  return "expected an IP address or a host name to listen on, without a port, such as 127.0.0.1 or ::1";
}

/** Spec, "HTTP destination": an absolute http or https URL with a host and without user name or password. */
function httpUrl(text: string): string | undefined {
  const expected = "expected an absolute URL such as https://api.example.com";
  // The URL parser would repair `http:/host` and trim spaces; what is sent should be what is written.
  if (!/^https?:\/\/[^/\\\s]/i.test(text) || /\s/.test(text) || !URL.canParse(text)) return expected;
  const url = new URL(text);
  if (url.username !== "" || url.password !== "") {
    return "must hold no user name or password: put credentials into an auth block";
  }
  return url.hostname === "" ? expected : undefined;
}

/** Spec, "HTTP destination": no `.` or `..` segment, however it is written, since a URL parser would take it for one. */
function urlPath(text: string): string | undefined {
  const segments = (text.split(/[?#]/, 1)[0] ?? "").split(/[/\\]/);
  const dotted = segments.some((segment) => /^(\.|%2e){1,2}$/i.test(segment));
  if (dotted) return 'must hold no "." or ".." segment';
  return /[\s\p{Cc}]/u.test(text) ? "must hold no blank: percent-encode it as %20" : undefined;
}
