import type { Clock } from "../../../time/clock.ts";
import type { PostgresPool } from "./pool.ts";
import type { Statement } from "./statement.ts";

/** Something a loop asks the database again and again while it has nothing to do. */
export interface Question {
  readonly name: string;
  /** The boolean expression that answers it, given the text of its one parameter. */
  readonly sql: (parameter: string) => string;
}

interface Asked {
  readonly question: Question;
  readonly value: unknown;
  readonly resolve: (answer: boolean) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Looks whether there is work, for all loops of the process that ask in the same turn of the event loop with one statement: half of what
 * an idle process costs. A question that waits for a lock would hold up the others: asked together they are given up after a second,
 * and then asked apart for a minute, each on a connection of its own.
 */
export class Looks {
  readonly #pool: Pick<PostgresPool, "run">;
  readonly #clock: Clock;
  readonly #statements = new Map<string, Statement>();
  #asked: Asked[] = [];
  #apartUntil = Number.NEGATIVE_INFINITY;

  constructor(pool: Pick<PostgresPool, "run">, clock: Clock) {
    this.#pool = pool;
    this.#clock = clock;
  }

  /**
   * @param value the question's parameter
   * @returns the answer, as of the end of this turn of the event loop
   * @throws StoreError
   */
  ask(question: Question, value: unknown): Promise<boolean> {
    return new Promise((resolve, reject) => {
      if (this.#asked.length === 0) setImmediate(() => this.#look());
      this.#asked.push({ question, value, resolve, reject });
    });
  }

  #look(): void {
    const asked = this.#asked;
    this.#asked = [];
    const together = asked.length > 1 && this.#clock.monotonic() >= this.#apartUntil;
    if (together) void this.#together(asked);
    else this.#apart(asked);
  }

  async #together(asked: readonly Asked[]): Promise<void> {
    try {
      await this.#run(asked, TOGETHER_TIMEOUT_MS);
    } catch {
      // Asked alone, each gets its own answer or its own error.
      this.#apartUntil = this.#clock.monotonic() + APART_MS;
      this.#apart(asked);
    }
  }

  #apart(asked: readonly Asked[]): void {
    for (const one of asked) this.#run([one]).catch(one.reject);
  }

  async #run(asked: readonly Asked[], timeoutMs?: number): Promise<void> {
    const statement = { ...this.#statementFor(asked), ...(timeoutMs === undefined ? {} : { timeoutMs }) };
    const [answers] = await this.#pool.run(
      statement,
      asked.map(({ value }) => value),
    );
    asked.forEach(({ resolve }, n) => {
      resolve(answers?.[`answer_${n}`] === true);
    });
  }

  #statementFor(asked: readonly Asked[]): Statement {
    const name = asked.map(({ question }) => question.name).join(" and ");
    let statement = this.#statements.get(name);
    if (statement === undefined) {
      const answers = asked.map(({ question }, n) => `(${question.sql(`$${n + 1}`)}) AS answer_${n}`);
      statement = { name, text: `SELECT ${answers.join(",\n  ")}` };
      this.#statements.set(name, statement);
    }
    return statement;
  }
}

const TOGETHER_TIMEOUT_MS = 1000;
const APART_MS = 60_000;
