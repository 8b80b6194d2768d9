import type { Infer } from "../../../model/schema.ts";

/** Credentials that an HTTP destination sends (spec, "HTTP destination auth"). */
const httpDestinationAuthSchema = {
  kinds: {
    oauth2: {
      type: "object",
      description:
        "Client credentials grant: fetches a token from `tokenUrl`, caches it, sends `Authorization: Bearer <token>`.",
      required: ["clientId", "clientSecret", "tokenUrl"],
      properties: {
        clientId: { type: "string", syntax: "notBlank", description: "Client identifier." },
        clientSecret: { type: "string", secret: true, description: "Client secret." },
        tokenUrl: {
          type: "string",
          url: true,
          syntax: "httpUrl",
          description: "Token endpoint; same rules as `baseUrl`.",
        },
        scope: { type: "string", description: "Scope asked for." },
        extraParams: {
          type: "object",
          additionalProperties: { type: "string" },
          default: {},
          description: "Extra form parameters of the token request.",
        },
      },
    },
    basic: {
      type: "object",
      description: "Sends `Authorization: Basic <credentials>`.",
      required: ["username", "password"],
      properties: {
        username: { type: "string", description: "User name." },
        password: { type: "string", secret: true, description: "Password." },
      },
    },
    header: {
      type: "object",
      description: "Sends a fixed header.",
      required: ["headerValue"],
      properties: {
        headerName: {
          type: "string",
          syntax: "headerName",
          default: "Authorization",
          description: "Name of the header.",
        },
        headerValue: { type: "string", secret: true, description: "Whole value of the header." },
      },
    },
  },
} as const;

/** Keys of an HTTP destination (spec, "HTTP destination"; design, "Private addresses"). */
export const httpDestinationSchema = {
  type: "object",
  description: "POST with the payload as JSON body. A 2xx status completes the delivery; redirects are not followed.",
  required: ["baseUrl"],
  properties: {
    baseUrl: {
      type: "string",
      url: true,
      syntax: "httpUrl",
      description: "Absolute `http` or `https` URL without user name or password.",
    },
    path: {
      type: "string",
      syntax: "urlPath",
      default: "/",
      description: "Path behind `baseUrl`; no `.` or `..` segment.",
    },
    timeoutMs: { type: "integer", unit: "ms", minimum: 0, default: 30000, description: "Request timeout." },
    auth: { ...httpDestinationAuthSchema, description: "Credentials to send." },
    allowMetadataAddress: {
      type: "boolean",
      default: false,
      description: "Allow cloud metadata addresses such as `169.254.169.254`.",
    },
  },
} as const;

export type HttpDestinationAuth = Infer<typeof httpDestinationAuthSchema>;
export type HttpDestinationConfig = Infer<typeof httpDestinationSchema>;
