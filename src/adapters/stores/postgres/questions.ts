import type pg from "pg";
import { resolvesWithin } from "../../../time/wait.ts";
import type { Reserve } from "../sql/reserve.ts";
import { socketOf } from "./statement.ts";
import type { Turns } from "./turns.ts";

/** Those of the database. */
interface Connections {
  readonly turns: Turns;
  /** One of the pool, for a statement. */
  connect(name: string): Promise<pg.PoolClient>;
}

interface Question {
  readonly reserve: Reserve;
  send(client: pg.PoolClient): Promise<pg.QueryResult>;
  answer(result: pg.QueryResult | undefined): void;
}

/**
 * Sends the questions that idle loops ask at the same moment together, in one write to one connection: most of what an
 * idle process and its server cost is waking up. When an answer is late, as its table is locked, the questions behind
 * it are given up, and the connection counts as that of the late one alone.
 */
export class Questions {
  readonly #connections: Connections;
  #gathered: Question[] = [];
  #isAsking = false;
  #isLate = false;

  constructor(connections: Connections) {
    this.#connections = connections;
  }

  /**
   * @param reserve of the store, in which the connection counts once
   * @returns undefined when the question was not answered: ask alone. Never rejects
   */
  ask(reserve: Reserve, send: Question["send"]): Promise<pg.QueryResult | undefined> {
    return new Promise((answer) => {
      if (this.#isLate) return answer(undefined);
      this.#gathered.push({ reserve, send, answer });
      if (!this.#isAsking) this.#askSoon();
    });
  }

  #askSoon(): void {
    this.#isAsking = true;
    setImmediate(async () => {
      await this.#askAll();
      if (this.#gathered.length > 0) this.#askSoon();
      else this.#isAsking = false;
    });
  }

  async #askAll(): Promise<void> {
    const ended = await this.#connections.turns.take();
    const asked = this.#gathered.splice(0);
    const held = new Map([...new Set(asked.map(({ reserve }) => reserve))].map((each) => [each, each.tryTake()]));
    const client = await this.#connections.connect("questions").catch(() => undefined);
    const unanswered = new Set(asked);
    let isBroken = false;
    const send = async (question: Question) => {
      const isFree = client !== undefined && held.get(question.reserve) !== undefined;
      const result = isFree
        ? await question.send(client).catch(() => {
            isBroken = true;
            return undefined;
          })
        : undefined;
      unanswered.delete(question);
      question.answer(result);
    };
    if (client !== undefined) socketOf(client).cork();
    const answered = Promise.all(asked.map(send));
    if (client !== undefined) socketOf(client).uncork();
    if (!(await resolvesWithin(LONGEST_MS, answered))) {
      this.#isLate = true;
      const [late, ...behind] = unanswered;
      for (const { answer } of [...behind, ...this.#gathered.splice(0)]) answer(undefined);
      for (const [reserve, end] of held) {
        if (reserve === late?.reserve) continue;
        end?.();
        held.delete(reserve);
      }
      await answered;
      this.#isLate = false;
    }
    client?.release(isBroken);
    for (const end of held.values()) end?.();
    ended();
  }
}

const LONGEST_MS = 20;
