import type { LeftRow } from "../../ports/finishedRows.ts";
import type { Redact } from "../redaction/redact.ts";

/** What people and programs see of the rows that a change left as they are; nothing where there are none. */
export interface LeftShown {
  readonly left?: {
    readonly count: number;
    /** The first of them; reasons are redacted. */
    readonly rows: readonly LeftRow[];
  };
}

/** Collects the rows that a change on request leaves as they are: their number, and a few of them. */
export class LeftRows {
  readonly #redact: Redact;
  readonly #rows: LeftRow[] = [];
  #count = 0;

  constructor(redact: Redact) {
    this.#redact = redact;
  }

  add(rows: readonly LeftRow[]): void {
    this.#count += rows.length;
    for (const { id, reason } of rows.slice(0, MOST_NAMED - this.#rows.length)) {
      this.#rows.push({ id, reason: this.#redact(reason) });
    }
  }

  get shown(): LeftShown {
    return this.#count === 0 ? {} : { left: { count: this.#count, rows: this.#rows } };
  }

  get text(): string | undefined {
    return leftText(this.shown);
  }
}

const MOST_NAMED = 5;

/** Says how many rows were left, and names some. @returns undefined where there are none */
export function leftText({ left }: LeftShown): string | undefined {
  if (left === undefined) return undefined;
  const { count, rows } = left;
  const were = count === 1 ? "1 row was" : `${count} rows were`;
  const named = rows.map(({ id, reason }) => `${id}: ${reason}`).join("; ");
  const more = count > rows.length ? `; and ${count - rows.length} more` : "";
  return `${were} left as ${count === 1 ? "it is" : "they are"}: ${named}${more}`;
}
