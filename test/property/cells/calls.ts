import { StoreError } from "../../../src/model/errors.ts";
import type { InsertResult, NewInboxRow } from "../../../src/model/rows.ts";
import type { BucketStore } from "../../../src/ports/bucketStore.ts";
import type { MemoryCell } from "./memoryCell.ts";

/** What a process sends to a cell: the port of its buckets, and the insert of received rows. */
export type Port = BucketStore & { insert(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]> };
export type Method = keyof Port;

/** A cell, as calls reach it. */
export interface Reached {
  readonly name: string;
  readonly tables: MemoryCell;
  /** Its database is away: calls fail, or wait until it is back. */
  readonly away: "fails" | "hangs" | undefined;
  /** Told of each call that it has done. */
  done(call: Done): void;
}

export interface Done {
  readonly actor: string;
  readonly method: Method;
  readonly args: readonly unknown[];
  readonly result: unknown;
}

/** One call on its way: it is sent, done by the cell, and its answer reaches the caller, each when told to. */
export class Call {
  readonly actor: string;
  readonly cell: Reached;
  readonly method: Method;
  readonly #args: readonly unknown[];
  readonly #resolve: (result: unknown) => void;
  readonly #reject: (error: unknown) => void;
  #answer: (() => void) | undefined;

  constructor(
    actor: string,
    cell: Reached,
    method: Method,
    args: readonly unknown[],
    resolve: (result: unknown) => void,
    reject: (error: unknown) => void,
  ) {
    this.actor = actor;
    this.cell = cell;
    this.method = method;
    this.#args = args;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  get isDone(): boolean {
    return this.#answer !== undefined;
  }

  /** Whether it can go on now. */
  get isReady(): boolean {
    return this.isDone || this.cell.away !== "hangs";
  }

  /** The cell does it; its answer waits. */
  do(): void {
    if (this.isDone) return;
    if (this.cell.away === "fails") {
      this.#answer = () => this.#reject(new StoreError("unavailable", "the database is away"));
      return;
    }
    const { tables } = this.cell;
    try {
      const statement = tables[this.method] as (...args: readonly unknown[]) => unknown;
      const result = statement.apply(tables, [...this.#args]);
      this.#answer = () => this.#resolve(result);
      this.cell.done({ actor: this.actor, method: this.method, args: this.#args, result });
    } catch (error) {
      this.#answer = () => this.#reject(error);
    }
  }

  answer(): void {
    this.do();
    this.#answer?.();
  }

  /** Its connection breaks. */
  break(): void {
    this.#reject(new StoreError("unavailable", "the connection broke"));
  }
}

/** The calls of all processes that have no answer yet, in the order in which they were sent. */
export class Calls {
  #pending: Call[] = [];

  /** The way of an actor into a cell. */
  port(actor: string, cell: Reached): Port {
    const send =
      (method: Method) =>
      (...args: readonly unknown[]) =>
        new Promise<unknown>((resolve, reject) => {
          this.#pending.push(new Call(actor, cell, method, args, resolve, reject));
        });
    return new Proxy({} as Port, { get: (_, method: Method) => send(method) });
  }

  /** Those of an actor that can go on. */
  ready(actor: string): readonly Call[] {
    return this.#pending.filter((call) => call.actor === actor && call.isReady);
  }

  of(actor: string): readonly Call[] {
    return this.#pending.filter((call) => call.actor === actor);
  }

  to(cell: Reached): readonly Call[] {
    return this.#pending.filter((call) => call.cell === cell);
  }

  answer(call: Call): void {
    this.#remove(call);
    call.answer();
  }

  break(call: Call): void {
    this.#remove(call);
    call.break();
  }

  /** The actor is gone: nobody waits for its answers. */
  forget(actor: string): void {
    this.#pending = this.#pending.filter((call) => call.actor !== actor);
  }

  #remove(call: Call): void {
    this.#pending = this.#pending.filter((each) => each !== call);
  }
}
