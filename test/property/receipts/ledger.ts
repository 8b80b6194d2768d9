import { type Expected, expectedOf, type Message } from "./expected.ts";
import { COMPARED_HEADER } from "./headers.ts";
import type { Answer } from "./sender.ts";

/** A row as the database has it. */
export interface StoredRow {
  readonly id: string;
  readonly source: string;
  readonly payload: string;
  /** What it holds of {@link COMPARED_HEADER}. */
  readonly header: string | null;
}

interface Key {
  stored: number;
  duplicates: number;
  /** No message of another key has this text. */
  exact: boolean;
}

/** Every message with its answer, and what must therefore be in the database. */
export class Ledger {
  readonly #stored = new Map<string, Message>();
  readonly #keys = new Map<string, Key>();
  /** Answers by what they say. */
  readonly counts: Record<string, number> = {};

  /**
   * Enters a message with its answer.
   *
   * @returns what is wrong with the answer; undefined when nothing is
   */
  enter(message: Message, { status, contentType, text }: Answer): string | undefined {
    const expected = expectedOf(message);
    const body = objectOf(text);
    this.#count(expected, status);
    if (body === undefined || contentType !== "application/json; charset=utf-8") return "the body is no JSON object";
    switch (expected.kind) {
      case "filtered":
        return status === 202 && body.status === "filtered" ? undefined : "expected 202 filtered";
      case "refused":
        return status === expected.status && expected.error.test(String(body.error))
          ? undefined
          : `expected ${expected.status} ${expected.error}`;
      case "taken":
        return this.#take(message, expected, status, body);
    }
  }

  /** Compares with the rows of the database. @returns a text for each row that differs from its message */
  faults(rows: readonly StoredRow[]): readonly string[] {
    const faults = rows.flatMap((row) => {
      const message = this.#stored.get(row.id);
      if (message === undefined) return [`row ${row.id} was not answered with 202`];
      const same =
        row.source === message.source &&
        row.payload === new TextDecoder().decode(message.body) &&
        row.header === textOf(trimmed(message.headers[COMPARED_HEADER]));
      return same ? [] : [`row ${JSON.stringify(row)} is not what was sent: ${describeMessage(message)}`];
    });
    const ids = new Set(rows.map(({ id }) => id));
    const missing = [...this.#stored].filter(([id]) => !ids.has(id));
    const unsupported = [...this.#keys].filter(([, key]) => key.stored === 0 || (key.exact && key.stored > 1));
    return [
      ...faults,
      ...missing.map(([id, message]) => `${id} is not stored: ${describeMessage(message)}`),
      ...unsupported.map(([key, counts]) => `${key.slice(0, 300)}: ${JSON.stringify(counts)}`),
    ];
  }

  #take(
    message: Message,
    { key, exact }: Extract<Expected, { readonly kind: "taken" }>,
    status: number,
    body: Readonly<Record<string, unknown>>,
  ): string | undefined {
    const name = `${message.source} ${key}`;
    const counts = this.#keys.get(name) ?? { stored: 0, duplicates: 0, exact: true };
    this.#keys.set(name, counts);
    counts.exact &&= exact;
    if (status === 200 && body.status === "duplicate") {
      counts.duplicates += 1;
      return undefined;
    }
    if (status !== 202 || typeof body.messageId !== "string") return "expected 202 with a messageId, or 200 duplicate";
    if (this.#stored.has(body.messageId)) return "the messageId was given before";
    counts.stored += 1;
    this.#stored.set(body.messageId, message);
    return undefined;
  }

  #count(expected: Expected, status: number): void {
    const name = `${expected.kind} ${status}`;
    this.counts[name] = (this.counts[name] ?? 0) + 1;
  }
}

/** A message as a test's failure shows it. */
export function describeMessage({ source, headers, body }: Message): string {
  const text = body.toString("latin1");
  const shown = text.length > 400 ? `${text.slice(0, 200)}...${text.slice(-200)}` : text;
  return `${source} ${JSON.stringify(headers)} ${body.length} bytes (latin1): ${JSON.stringify(shown)}`;
}

function objectOf(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : undefined;
  } catch {
    return undefined;
  }
}

/** White space around a header's value is none of it (RFC 9110, section 5.5). */
function trimmed(value = ""): string {
  return value.replace(/^[ \t]+|[ \t]+$/g, "");
}

/** A header's bytes, a character each, are UTF-8 if they can be, else Latin-1. */
function textOf(bytes: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Buffer.from(bytes, "latin1"));
  } catch {
    return bytes;
  }
}
