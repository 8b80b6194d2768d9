import type { OpenSession, Row } from "../../../../src/adapters/capture/sqlserver-cdc/session.ts";
import type { Statement } from "../../../../src/adapters/capture/sqlserver-cdc/statements.ts";
import type { Endpoint } from "../../../../src/adapters/stores/sqlserver/endpoints.ts";
import { Secret } from "../../../../src/model/secret.ts";

export const PASSWORD = "not-for-the-log";

/** A server that nobody answers for. */
export const ENDPOINT: Endpoint = {
  host: "127.0.0.1",
  port: 1433,
  instance: undefined,
  database: "shop",
  username: "relay",
  password: new Secret(PASSWORD),
  encrypt: true,
  trustServerCertificate: false,
  hostNameInCertificate: undefined,
  multiSubnetFailover: false,
  connectionTimeoutMs: 5000,
  applicationName: "svc",
};

/** LSN number `n`, as the server writes it. */
export function lsn(n: number): string {
  return `0x${n.toString(16).toUpperCase().padStart(20, "0")}`;
}

/** An error as the driver makes it of the server's. */
export function serverError(number: number, message: string): Error {
  return Object.assign(new Error(message), { name: "RequestError", code: "EREQUEST", number });
}

export interface CapturedChange {
  readonly lsn: string;
  /** `__$operation`: 1 delete, 2 insert, 3 and 4 update. */
  readonly operation: 1 | 2 | 3 | 4;
  /** Age of the commit in ms. */
  readonly ageMs?: number;
}

/** Answers the statements of the adapter as a server with change data capture would. */
export class ScriptedCdc {
  database: Row = { is_cdc_enabled: true, is_tracked_by_cdc: true, user_name: "relay", engine_edition: 3 };
  instances: Row[] = [{ capture_instance: "dbo_outbox", role_name: null, create_date: new Date(0) }];
  job: Row[] = [{ continuous: true, pollinginterval: "0" }];
  running = 1;
  lowest: string | null = lsn(1);
  highest: string | null = lsn(100);
  changes: CapturedChange[] = [];
  /** By the name of a statement: what it fails with. */
  readonly failures = new Map<string, Error>();
  /** By the name of a statement: answered only with an error when the session is closed. */
  readonly hanging = new Set<string>();
  readonly sent: { readonly statement: Statement; readonly values: Readonly<Record<string, string>> }[] = [];
  opened = 0;
  closed = 0;
  #onSent = () => {};

  open: OpenSession = async (_, signal) => {
    signal.throwIfAborted();
    this.opened += 1;
    let isOpen = true;
    let onClose = () => {};
    const ended = new Promise<never>((_resolve, reject) => {
      onClose = () => reject(Object.assign(new Error("closed"), { name: "RequestError", code: "ECLOSE" }));
    });
    ended.catch(() => {});
    return {
      query: async (statement, values) => {
        this.sent.push({ statement, values });
        this.#onSent();
        if (!isOpen || this.hanging.has(statement.name)) return await ended;
        const failure = this.failures.get(statement.name);
        if (failure !== undefined) throw failure;
        return this.#answer(statement.name, values);
      },
      close: async () => {
        if (!isOpen) return;
        isOpen = false;
        this.closed += 1;
        onClose();
      },
    };
  };

  /** Resolves when a statement is sent next. */
  nextSent(name: string): Promise<void> {
    return new Promise((resolve) => {
      this.#onSent = () => {
        if (this.sent.at(-1)?.statement.name === name) resolve();
      };
    });
  }

  count(name: string): number {
    return this.sent.filter(({ statement }) => statement.name === name).length;
  }

  #answer(name: string, { position = "" }: Readonly<Record<string, string>>): readonly Row[] {
    switch (name) {
      case "database":
        return [this.database];
      case "capture instances":
        return this.instances;
      case "capture job":
        return this.job;
      case "capture job's activity":
        return [{ running: this.running }];
      case "range":
        return [{ lowest: this.lowest, highest: this.highest }];
      case "poll":
        return [this.#poll(position)];
      default:
        throw new Error(`no answer is known for the statement "${name}"`);
    }
  }

  #poll(position: string): Row {
    const { highest, lowest } = this;
    if (highest === null || highest <= position) return { reached: highest, lowest: null, inserted: 0, age_ms: null };
    const newest = this.changes
      .filter((change) => change.operation === 2 && change.lsn > position && change.lsn <= highest)
      .toSorted((a, b) => (a.lsn < b.lsn ? 1 : -1))[0];
    const age = newest?.ageMs;
    // The driver gives a bigint as text.
    return {
      reached: highest,
      lowest,
      inserted: newest === undefined ? 0 : 1,
      age_ms: age === undefined ? null : String(age),
    };
  }
}

/** Pauses that end when the test says so, or by their signal. */
export class ManualPauses {
  readonly lengths: number[] = [];
  #end: (() => void) | undefined;
  #onBegin = () => {};

  readonly wait = (ms: number, signal: AbortSignal): Promise<void> =>
    new Promise((resolve) => {
      this.lengths.push(ms);
      this.#end = resolve;
      signal.addEventListener("abort", () => resolve(), { once: true });
      this.#onBegin();
    });

  /** Ends the pause that is under way, and resolves when the next one begins. */
  next(): Promise<void> {
    const begun = this.begun();
    this.#end?.();
    return begun;
  }

  /** Resolves when the next pause begins. */
  begun(): Promise<void> {
    return new Promise((resolve) => {
      this.#onBegin = resolve;
    });
  }
}
