import { StoreError } from "../../../model/errors.ts";

/** Whether the database refuses one row, for its data or by a rule of the owner: the same statement without that row would pass. */
export function isRefused(error: unknown): error is StoreError {
  return error instanceof StoreError && (error.code === "data" || error.code === "refused");
}
