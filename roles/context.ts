import type { Config } from "../src/config/types.ts";
import type { Tally } from "../src/core/operations/heartbeat.ts";
import type { ReceiptWork } from "../src/core/receipt/receiptBatcher.ts";
import type { Redact } from "../src/core/redaction/redact.ts";
import type { BodyBudget } from "../src/http/exchange.ts";
import type { HttpRoute } from "../src/http/routes.ts";
import type { Evaluator } from "../src/ports/evaluator.ts";
import type { Metrics } from "../src/ports/metrics.ts";
import type { OtherProcesses } from "../src/ports/operationsStore.ts";
import type { OperatorStore } from "../src/ports/operatorStore.ts";
import type { HealthComponent, Log, SecretMasker, Service } from "../src/ports/runtime.ts";
import type { Store } from "../src/ports/store.ts";
import type { Tracing } from "../src/setup/tracing.ts";
import type { Clock } from "../src/time/clock.ts";
import type { SharedStates } from "./sharedStates.ts";

export interface RoleContext {
  readonly config: Config;
  /** The configuration in effect as text, with the origin of each value, secrets masked. */
  readonly configText: string;
  readonly store: Store;
  /** What the cells of an installation share: destinations, figures. Without cells the same as `store`. */
  readonly control: Pick<Store, "destinations" | "operations" | "schema">;
  /** The shared states of destinations, for the pollers of this process. */
  readonly states: SharedStates;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  /** The secrets of the configuration, and those obtained while the process runs. */
  readonly secrets: SecretMasker;
  readonly redact: Redact;
  /** Evaluates the configured transforms. */
  readonly evaluator: Pick<Evaluator, "evaluate">;
  /** What goes around the parts of this process; nothing without `tracing.enabled`. */
  readonly tracing: Tracing;
  /** The memory for request bodies, of all routes of this process together. */
  readonly bodies: BodyBudget;
  /** What is counted for operators, by source and destination. */
  readonly tally: Tally;
  /** What the last heartbeat saw of the fleet. */
  readonly fleet: { others: OtherProcesses };
  /** Wakes between the roles of this process. */
  readonly wakes: Wakes;
  /** What receipts do for the relay and the poller of this process, which set it. */
  readonly receipts: ReceiptWork;
}

/** What the roles that serve senders and operators are built from: all cells as one. */
export type OperatorContext = Omit<RoleContext, "store" | "control" | "states"> & { readonly store: OperatorStore };

/** The cells of an installation, in the order of the configuration; each works in a store of its own once it is open. */
export type Cells = readonly { readonly context: RoleContext; readonly isOpen: boolean }[];

/** Hints to the roles of this process that work has come. */
export class Wakes {
  readonly #listeners: Record<"relay" | "poller", () => void>;

  /** @param elsewhere wakes a poller of another process, as long as this one has none */
  constructor(elsewhere: () => void) {
    this.#listeners = { relay: () => {}, poller: elsewhere };
  }

  /** The role that is woken from now on. */
  listen(role: "relay" | "poller", wake: () => void): void {
    this.#listeners[role] = wake;
  }

  wake(role: "relay" | "poller"): void {
    this.#listeners[role]();
  }
}

/** What a role adds to the process. The order of the shutdown is that of the spec ("Runtime behaviours", Shutdown). */
export interface RoleParts {
  readonly routes?: readonly HttpRoute[];
  /** Requests that wait for messages: stopped together with the HTTP servers, which wait for them. */
  readonly waiters?: readonly Service[];
  /** Stopped after the HTTP servers: consumers, relay, poller. */
  readonly workers?: readonly Service[];
  /** Stopped last but for the database: publishers, and what the workers hand their rows to. */
  readonly closers?: readonly Service[];
  readonly health?: readonly HealthComponent[];
}

/** A service that only has to be closed. */
export function closer(name: string, close: () => Promise<void>): Service {
  return { name, start: async () => {}, stop: close };
}
