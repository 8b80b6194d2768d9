const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** Whether a value is the text of a UUID in any letter case and of any version: ids of rows that applications insert are theirs to choose. */
export function isUuid(value: unknown): value is string {
  return typeof value === "string" && UUID.test(value);
}
