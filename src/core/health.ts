import { errorText } from "../model/errors.ts";
import type { Metrics } from "../ports/metrics.ts";
import type { HealthComponent, Log, Service } from "../ports/runtime.ts";
import type { Clock, Timer } from "../time/clock.ts";
import { withTimeout } from "../time/wait.ts";

/** The body of a health answer (spec, "GET /health/ready"). */
interface HealthBody {
  readonly status: "healthy" | "unhealthy";
  readonly components: Readonly<Record<string, { readonly status: "up" | "down" }>>;
}

export interface HealthReport {
  /** False when a component that decides readiness is down. */
  readonly ready: boolean;
  readonly body: HealthBody;
}

export const LIVENESS: HealthBody = { status: "healthy", components: { process: { status: "up" } } };

const CHECK_TIMEOUT_MS = 3000;
/** Shortest time between two lines about a component that stays down: its reason may change with every probe. */
const RENEWAL_MS = 30_000;

interface HealthDependencies {
  readonly log: Log;
  readonly clock: Pick<Clock, "monotonic">;
  readonly metrics: Pick<Metrics, "componentUp">;
  /** Longest wait for one check in ms; later the component counts as down. */
  readonly timeoutMs?: number | undefined;
}

interface Logged {
  readonly reason: string;
  readonly atMs: number;
}

/** Checks the components on request; logs when one goes down, is down for another reason, or comes up. */
export class Health {
  readonly #components: () => readonly HealthComponent[];
  readonly #dependencies: HealthDependencies;
  readonly #timeoutMs: number;
  readonly #down = new Map<string, Logged>();
  #running: Promise<HealthReport> | undefined;

  /** @param components asked for at each run */
  constructor(components: () => readonly HealthComponent[], dependencies: HealthDependencies) {
    this.#components = components;
    this.#dependencies = dependencies;
    this.#timeoutMs = dependencies.timeoutMs ?? CHECK_TIMEOUT_MS;
  }

  /** Checks all components in parallel; never rejects. Probes share a running check: a storm costs no more than one. */
  readiness(): Promise<HealthReport> {
    this.#running ??= this.#checkAll().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  /** Checks every 30 s too: without probes the log and the metric would know nothing of a component that is down. */
  watch(timer: Timer): Service {
    let cancel = () => {};
    const next = () => {
      cancel = timer(RENEWAL_MS, () => {
        void this.readiness();
        next();
      });
    };
    return { name: "health", start: async () => next(), stop: async () => cancel() };
  }

  async #checkAll(): Promise<HealthReport> {
    const results = await Promise.all(
      this.#components().map(async (component) => ({ component, fault: await this.#faultOf(component) })),
    );
    for (const { component, fault } of results) this.#note(component.name, fault);
    const ready = results.every(({ component, fault }) => fault === null || !component.decidesReadiness);
    const components = Object.fromEntries(
      results.map(({ component, fault }) => [component.name, { status: fault === null ? "up" : "down" } as const]),
    );
    return { ready, body: { status: ready ? "healthy" : "unhealthy", components } };
  }

  /** @returns what is wrong, or null */
  async #faultOf(component: HealthComponent): Promise<string | null> {
    try {
      await withTimeout(this.#timeoutMs, "the check", (signal) => component.check(signal));
      return null;
    } catch (error) {
      return errorText(error);
    }
  }

  #note(component: string, fault: string | null): void {
    const { log, metrics, clock } = this.#dependencies;
    metrics.componentUp(component, fault === null);
    if (fault === null) {
      if (this.#down.delete(component)) log.info({ component }, "component is up again");
      return;
    }
    const logged = this.#down.get(component);
    const now = clock.monotonic();
    if (logged !== undefined && (logged.reason === fault || now - logged.atMs < RENEWAL_MS)) return;
    this.#down.set(component, { reason: fault, atMs: now });
    log.warn({ component, reason: fault }, "component is down");
  }
}
