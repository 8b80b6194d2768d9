import { OVERLOADED, UNDECODABLE, UNSUPPORTED_ENCODING } from "../admission.ts";
import { ACCEPTED_ENCODINGS } from "../contentEncoding.ts";
import { ref, type SchemaName } from "./schemas.ts";
import type { ApiResponse, MediaType, ResponseHeader, Schema } from "./types.ts";

/** One answer of a route; a status may stand for several. */
export type Answer = readonly [status: number, response: ApiResponse];

const JSON_MEDIA_TYPE = "application/json";

/** An answer with a JSON body. */
export function json(status: number, description: string, schema: Schema, example: unknown): Answer {
  return [status, { description, content: jsonContent(schema, { example: { value: example } }) }];
}

export function jsonContent(
  schema: Schema,
  examples: NonNullable<MediaType["examples"]>,
): Readonly<Record<string, MediaType>> {
  return { [JSON_MEDIA_TYPE]: { schema, examples } };
}

/** An answer with a body of text. */
export function text(status: number, description: string, mediaType: string, schema: Schema): Answer {
  return [status, { description, content: { [mediaType]: { schema } } }];
}

/** An answer `{"error": ...}`. */
export function errorAnswer(status: number, description: string, schema: SchemaName, error: string): Answer {
  return json(status, description, ref(schema), { error });
}

/** An answer to which response headers belong. */
export function withHeaders(answer: Answer, headers: Readonly<Record<string, ResponseHeader>>): Answer {
  const [status, response] = answer;
  return [status, { ...response, headers: { ...response.headers, ...headers } }];
}

/** The answer to wrong or missing credentials. */
export function unauthorized(schema: SchemaName, example: object): Answer {
  const description = "The credentials are wrong or absent; the reason names the check, never a credential.";
  return withHeaders(json(401, description, ref(schema), example), {
    "WWW-Authenticate": {
      description: "Scheme of the credentials that are expected.",
      required: true,
      schema: { enum: ["Bearer", "ApiKey", "HMAC"] },
    },
  });
}

export const RETRY_AFTER: Readonly<Record<string, ResponseHeader>> = {
  "Retry-After": {
    description: "Seconds after which to try again.",
    required: true,
    schema: { type: "integer", minimum: 1 },
  },
};

export const ENCODINGS: Readonly<Record<string, ResponseHeader>> = {
  "Accept-Encoding": { description: "What may be sent.", required: true, schema: { const: ACCEPTED_ENCODINGS } },
};

/** The message of a 413 answer, and what it means. */
export function tooLarge(maxBytes: number): { readonly description: string; readonly error: string } {
  return {
    description: `The body is larger than ${maxBytes} bytes.`,
    error: `Request body exceeds ${maxBytes} bytes`,
  };
}

export const SHUTTING_DOWN = "Service is shutting down";

/** What every route of a port may answer: before it looks at the request, or after a fault of the service. */
export function portAnswers(maxBodyBytes: number | null): readonly Answer[] {
  const { description, error } = tooLarge(maxBodyBytes ?? 0);
  return [
    ...(maxBodyBytes === null ? [] : [errorAnswer(413, description, "BodyTooLarge", error)]),
    errorAnswer(500, "Internal error; see the log.", "InternalError", "Internal error"),
    errorAnswer(
      503,
      "The service is shutting down: send the request again, another replica takes it.",
      "ShuttingDown",
      SHUTTING_DOWN,
    ),
  ];
}

export const STORAGE_FAILED = errorAnswer(
  500,
  "The database failed: send the request again.",
  "StorageFailed",
  "Storage failed",
);

/** What every route that reads a body may answer; a body that cannot be decoded is one of its 400s. */
export const bodyAnswers: readonly Answer[] = [
  errorAnswer(400, "The body is not what its Content-Encoding says.", "InvalidRequest", UNDECODABLE),
  withHeaders(
    errorAnswer(415, "The Content-Encoding is not supported.", "UnsupportedEncoding", UNSUPPORTED_ENCODING),
    ENCODINGS,
  ),
  withHeaders(
    errorAnswer(503, "Too many unfinished request bodies are held in memory.", "TooManyBodies", OVERLOADED),
    RETRY_AFTER,
  ),
];

/** Answers by status; those that share one become one response that says all of them. */
export function responses(answers: readonly Answer[]): Readonly<Record<string, ApiResponse>> {
  const byStatus = new Map<number, ApiResponse[]>();
  for (const [status, response] of answers) byStatus.set(status, [...(byStatus.get(status) ?? []), response]);
  return Object.fromEntries([...byStatus].map(([status, cases]) => [String(status), merged(cases)]));
}

function merged(cases: readonly ApiResponse[]): ApiResponse {
  const [only] = cases;
  if (cases.length === 1 && only !== undefined) return only;
  const headers = new Map(cases.flatMap((each) => Object.entries(each.headers ?? {})));
  const inEach = (name: string): boolean => cases.every((each) => each.headers?.[name]?.required === true);
  return {
    description: cases.map(({ description }) => description).join(" Or: "),
    headers: Object.fromEntries([...headers].map(([name, header]) => [name, { ...header, required: inEach(name) }])),
    content: mergedContent(cases),
  };
}

/** The bodies of several cases by media type, each with its example. */
function mergedContent(cases: readonly ApiResponse[]): Readonly<Record<string, MediaType>> {
  const mediaTypes = new Set(cases.flatMap(({ content = {} }) => Object.keys(content)));
  return Object.fromEntries(
    [...mediaTypes].map((mediaType): [string, MediaType] => {
      const bodies = cases.flatMap(({ description, content }) => {
        const body = content?.[mediaType];
        return body === undefined ? [] : [{ description, ...body }];
      });
      const schemas = new Map(bodies.map(({ schema }) => [JSON.stringify(schema), schema]));
      const examples = bodies.flatMap(({ description: summary, examples: own = {} }) =>
        Object.values(own).map(({ value }) => ({ summary, value })),
      );
      return [
        mediaType,
        {
          schema: schemas.size === 1 ? (bodies[0]?.schema ?? {}) : { anyOf: [...schemas.values()] },
          examples: Object.fromEntries(examples.map((example, n) => [`example${n + 1}`, example])),
        },
      ];
    }),
  );
}
