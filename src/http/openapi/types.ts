import type { Schema } from "../../model/described.ts";

/** The parts of OpenAPI 3.1 that the service's document uses. */

export interface OpenApiDocument {
  readonly openapi: "3.1.0";
  readonly info: object;
  readonly servers: readonly ServerEntry[];
  readonly tags: readonly object[];
  readonly paths: Readonly<Record<string, { readonly get?: Operation; readonly post?: Operation }>>;
  readonly components: {
    readonly schemas: Readonly<Record<string, Schema>>;
    readonly securitySchemes: Readonly<Record<string, SecurityScheme>>;
  };
}

export interface ServerEntry {
  readonly url: string;
  readonly description: string;
  readonly variables?: object;
}

export interface Operation {
  readonly operationId: string;
  readonly tags: readonly string[];
  readonly summary: string;
  readonly description: string;
  readonly parameters: readonly Parameter[];
  readonly requestBody?: { readonly required: boolean; readonly description: string; readonly content: Content };
  /** By status. */
  readonly responses: Readonly<Record<string, ApiResponse>>;
  /** Empty: callers need no credentials. */
  readonly security: readonly Readonly<Record<string, readonly string[]>>[];
  /** The servers of the route, if they differ from the server of the document. */
  readonly servers?: readonly ServerEntry[];
}

export interface Parameter {
  readonly name: string;
  readonly in: "header" | "path" | "query";
  readonly required: boolean;
  readonly description: string;
  readonly schema: Schema;
}

export interface ApiResponse {
  readonly description: string;
  readonly headers?: ResponseHeaders;
  /** Absent for an answer without a body. */
  readonly content?: Content;
}

export type ResponseHeaders = Readonly<Record<string, Pick<Parameter, "description" | "required" | "schema">>>;

/** By media type. */
export type Content = Readonly<Record<string, { readonly schema: Schema; readonly examples?: Examples }>>;

export type Examples = Readonly<Record<string, { readonly summary?: string; readonly value: unknown }>>;

export type SecurityScheme =
  | { readonly type: "http"; readonly scheme: "bearer" | "Signature"; readonly description: string }
  | { readonly type: "mutualTLS"; readonly description: string }
  | { readonly type: "apiKey"; readonly in: "header"; readonly name: string; readonly description: string };
