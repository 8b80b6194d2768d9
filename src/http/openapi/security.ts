import type { HmacAuth, InboundAuth } from "../credentials.ts";
import type { Operation, Parameter, SecurityScheme } from "./types.ts";

/** How an operation is protected, and the scheme that goes among the document's components. */
export interface Security {
  readonly security: Operation["security"];
  /** Headers that the credentials need beside the scheme's own. */
  readonly parameters: readonly Parameter[];
  readonly schemes: Readonly<Record<string, SecurityScheme>>;
}

/**
 * Describes an `auth` block; its secret is not read.
 *
 * @param name of the scheme: letters, digits, `.`, `-` and `_`
 * @param owner what it protects, for the description
 */
export function securityOf(auth: InboundAuth | undefined, name: string, owner: string): Security {
  if (auth === undefined) return { security: [], parameters: [], schemes: {} };
  const scheme = schemeOf(auth, owner);
  return { security: [{ [name]: [] }], parameters: parametersOf(auth), schemes: { [name]: scheme } };
}

function schemeOf(auth: InboundAuth, owner: string): SecurityScheme {
  if ("token" in auth) return { type: "http", scheme: "bearer", description: `The token of ${owner}.` };
  const inHeader = { type: "apiKey", in: "header", name: auth.headerName } as const;
  if ("key" in auth) return { ...inHeader, description: `The key of ${owner}.` };
  return { ...inHeader, description: `HMAC of the request with the secret of ${owner}: ${signing(auth)}` };
}

function signing(auth: HmacAuth): string {
  const { algorithm, signaturePrefix, timestampHeader, signaturePayloadFormat: format } = auth;
  const withTime = format === undefined ? timestampHeader !== undefined : !/^body$/i.test(format);
  const signed = withTime
    ? `the text of the ${timestampHeader} header, a dot, and the body's bytes`
    : "the body's bytes";
  const prefix = signaturePrefix === "" ? "" : `\`${signaturePrefix}\` and then `;
  return `${prefix}the hexadecimal ${algorithm} of ${signed}.`;
}

function parametersOf(auth: InboundAuth): readonly Parameter[] {
  if (!("secret" in auth) || auth.timestampHeader === undefined) return [];
  return [
    {
      name: auth.timestampHeader,
      in: "header",
      required: true,
      description: `Time of the request in Unix milliseconds, at most ${auth.timestampTolerance} ms away from the service's clock.`,
      schema: { type: "string", pattern: "^[0-9]{1,15}$" },
    },
  ];
}
