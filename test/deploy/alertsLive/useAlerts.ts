import { beforeAll, beforeEach, expect, test } from "@jest/globals";
import { eventually } from "../../support/eventually.ts";
import {
  type ActiveAlert,
  EVALUATION_MS,
  type Prometheus,
  shortened,
  startPrometheus,
  type Threshold,
  withThresholds,
} from "../../support/prometheus.ts";
import { read } from "../../support/repository.ts";
import type { Services } from "../../support/service.ts";
import { RULE_FILES } from "../deployFiles.ts";
import { LIVE_ALERTS, type LiveBlock } from "./coverage.ts";

type Labels = Readonly<Record<string, string>>;

export interface AlertsOptions {
  /** Divides every duration of the rules. Default 300: five minutes take a second, an hour twelve. */
  readonly factor?: number;
  /** Between two scrapes, and the longest time that one may take (default 300). */
  readonly scrapeMs?: number;
  /** Bounds to replace in the rules. */
  readonly thresholds?: readonly Threshold[];
  /** Texts to replace in the rules, as the chart does with its names. */
  readonly names?: Readonly<Record<string, string>>;
}

/** A Prometheus with the rules of the repository in shortened time. */
export interface Alerts {
  /** The server; from `beforeAll` on. */
  readonly prometheus: Prometheus;
  /** Pending and firing alerts of this name with these labels. */
  active(alert: string, labels?: Labels): Promise<readonly ActiveAlert[]>;
  /** Waits until the alert fires, and returns it. @throws Error when it fired already at the start of the test: the test is not its cause then */
  fires(alert: string, labels?: Labels): Promise<ActiveAlert>;
  /** Waits until the alert is neither pending nor firing. */
  ends(alert: string, labels?: Labels): Promise<void>;
  /** Waits until a query has this many series. */
  shows(query: string, count?: number): Promise<void>;
  /** Declares the test that the block caused each alert of its list, and no other. Call it at the block's end. */
  testCoverage(): void;
}

const TIMEOUT_MS = 45_000;
/** Nothing changes between two evaluations. */
const LOOK_MS = EVALUATION_MS / 2;

/** Starts a Prometheus for a block of tests. Call it in the block; the server ends with `services`. */
export function useAlerts(services: Services, block: LiveBlock, options: AlertsOptions = {}): Alerts {
  const caused = new Set<string>();
  let prometheus: Prometheus;

  beforeAll(async () => {
    prometheus = await startPrometheus({ ...options, rules: rules(options) });
    services.defer(() => prometheus.close());
  }, 60_000);

  let before: readonly ActiveAlert[] = [];
  beforeEach(async () => {
    // A single sample makes an alert pending, the next one may end it.
    before = (await prometheus.alerts()).filter(({ state }) => state === "firing");
  });

  const among = (all: readonly ActiveAlert[], alert: string, labels: Labels = {}) =>
    all.filter(
      (each) =>
        each.labels.alertname === alert && Object.entries(labels).every(([name, value]) => each.labels[name] === value),
    );
  const active = async (alert: string, labels?: Labels) => among(await prometheus.alerts(), alert, labels);
  const named = (alert: string, labels: Labels = {}) => `${alert} with ${JSON.stringify(labels)}`;
  return {
    get prometheus() {
      return prometheus;
    },
    active,
    fires: async (alert, labels) => {
      if (among(before, alert, labels).length > 0) throw new Error(`${named(alert, labels)} fired before its cause`);
      caused.add(alert);
      return await eventually(
        async () => {
          const [found] = (await active(alert, labels)).filter(({ state }) => state === "firing");
          if (found === undefined) throw new Error(`active: ${JSON.stringify(await prometheus.alerts())}`);
          return found;
        },
        { timeoutMs: TIMEOUT_MS, intervalMs: LOOK_MS, label: `${named(alert, labels)} fires` },
      );
    },
    ends: (alert, labels) =>
      eventually(async () => expect(await active(alert, labels)).toEqual([]), {
        timeoutMs: TIMEOUT_MS,
        intervalMs: LOOK_MS,
        label: `${named(alert, labels)} ends`,
      }),
    shows: (query, count = 1) =>
      eventually(async () => expect(await prometheus.query(query)).toHaveLength(count), {
        timeoutMs: TIMEOUT_MS,
        intervalMs: LOOK_MS,
        label: `${count} series of ${query}`,
      }),
    testCoverage: () =>
      test("each alert of this block's list was caused, and no other", () => {
        expect([...caused].sort()).toEqual([...LIVE_ALERTS[block]].sort());
      }),
  };
}

/** Does something again and again, `everyMs` apart (default 100), until `body` has ended. */
export async function whileDoing<T>(action: () => Promise<unknown>, body: () => Promise<T>, everyMs = 100): Promise<T> {
  let isOver = false;
  const doing = (async () => {
    while (!isOver) {
      await action();
      await new Promise((resolve) => setTimeout(resolve, everyMs));
    }
  })();
  try {
    return await body();
  } finally {
    isOver = true;
    await doing;
  }
}

/** The rules of both files in one text, as the chart joins them. */
function rules({ factor = 300, thresholds = [], names = {} }: AlertsOptions): string {
  const [first = "", ...others] = RULE_FILES.map(read);
  const all = [first, ...others.map((text) => text.split(/^groups:\n/m)[1])].join("\n");
  const named = Object.entries(names).reduce((text, [name, value]) => text.replaceAll(name, value), all);
  return shortened(withThresholds(named, thresholds), factor);
}
