import type { IncomingMessage, ServerResponse } from "node:http";
import { OPERATIONS, type OperationId, type OperationPath } from "../model/httpOperations.ts";
import type { RouteDescription } from "./openapi/answers.ts";

/** @param parameters the decoded values of `{name}` in the path */
export type RouteHandler = (
  req: IncomingMessage,
  res: ServerResponse,
  parameters: Readonly<Record<string, string>>,
) => Promise<void>;

export interface HttpRoute extends OperationPath {
  readonly operationId: string;
  readonly description: RouteDescription;
  readonly handle: RouteHandler;
  /** Of a source: what its sender's handshake uses besides POST. */
  readonly handshakeMethods?: readonly string[];
  /** Of a source: takes status and body of every answer, also without `handle`. */
  readonly onAnswer?: OnAnswer | undefined;
}

type OnAnswer = (status: number, body: string) => void;

/** The entry of {@link OPERATIONS} with what serves and describes it. @param of of an operation of each source */
export function httpRoute(
  id: OperationId,
  description: RouteDescription,
  handle: RouteHandler,
  of?: Pick<HttpRoute, "path" | "handshakeMethods" | "onAnswer"> & { readonly sourceId: string },
): HttpRoute {
  const entry = OPERATIONS[id];
  if (of === undefined) return { ...entry, operationId: id, description, handle };
  const { sourceId, ...own } = of;
  return { ...entry, ...own, operationId: `${id}_${sourceId}`, description, handle };
}

/** Identifiers for names of sources, unique: generators of clients allow few characters, a name may have any. */
export function sourceIds(names: readonly string[]): ReadonlyMap<string, string> {
  const taken = new Set<string>();
  return new Map(
    names.map((name) => {
      let id = name.replace(/[^A-Za-z0-9]/g, "_");
      while (taken.has(id)) id += "_";
      taken.add(id);
      return [name, id];
    }),
  );
}
