import { StoreError } from "../../../model/errors.ts";

/** Whether the database refuses the data of a row: the same statement without that row would pass. */
export function isRefused(error: unknown): error is StoreError {
  return error instanceof StoreError && error.code === "data";
}
