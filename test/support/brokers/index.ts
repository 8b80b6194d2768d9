/** What the tests use; programs outside jest take `servers.ts`. */

export { describeWith } from "./describeWith.ts";
export { ownServerForBlock, serverForBlock } from "./hooks.ts";
export * from "./servers.ts";
