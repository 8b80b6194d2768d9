import { afterAll, beforeAll } from "@jest/globals";
import { START_TIMEOUT_MS } from "./ready.ts";
import type { OwnServer } from "./types.ts";

/**
 * Asks for a server that others use too, before the first test of a `describe` block.
 *
 * @param get such as `sharedNats`
 * @returns gives it to hooks and tests of the block
 */
export function serverForBlock<S>(get: () => Promise<S>): () => S {
  let server: S | undefined;
  beforeAll(async () => {
    server = await get();
  }, START_TIMEOUT_MS);
  return () => {
    if (server === undefined) throw new Error("the server is there in tests and hooks only, after its start");
    return server;
  };
}

/**
 * Starts a server for the tests of a `describe` block, and ends it after the last of them.
 *
 * @param start such as `startNats`
 * @returns gives it to hooks and tests of the block
 */
export function ownServerForBlock<S extends OwnServer>(start: () => Promise<S>): () => S {
  let started: S | undefined;
  const server = serverForBlock(async () => {
    started = await start();
    return started;
  });
  afterAll(async () => {
    await started?.[Symbol.asyncDispose]();
  });
  return server;
}
