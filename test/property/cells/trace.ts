import type { BucketRow, BucketTable } from "../../../src/ports/bucketStore.ts";

/** What happened in a run, for people. */
export class Trace {
  readonly lines: string[] = [];

  note(what: string, ...values: readonly unknown[]): void {
    this.lines.push([what, ...values.map(told)].join(" "));
  }
}

/** In as few characters as tell it. */
function told(value: unknown): string {
  if (isTable(value)) return `${value.server}: ${value.rows.map(rowText).join(", ")}`;
  return JSON.stringify(value, (key, part) => (SHORT.has(key) || key === "" || isNumber(key) ? part : undefined)) ?? "";
}

function rowText({ bucket, state, epoch, otherCell, token }: BucketRow): string {
  return [bucket, state, epoch, otherCell, token].filter((part) => part !== null).join(" ");
}

const isTable = (value: unknown): value is BucketTable =>
  typeof value === "object" && value !== null && "rows" in value && "server" in value;

const isNumber = (key: string): boolean => /^\d+$/.test(key);

/** What is told of rows and steps. */
const SHORT: ReadonlySet<string> = new Set(
  "idempotencyKey aggregateId bucket bucketsOn epoch nextEpoch cell from token server kind rows ms buckets to until isDone process mover calls pick keys writes changes areBroken away to progress answers fate method after which isDelivered isRelayedOnly".split(
    " ",
  ),
);
