import { expect, test } from "@jest/globals";
import { longestRunMs, runFaults, runOptionsOf } from "../support/chaos/run.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { useServices } from "../support/service.ts";

const services = useServices();
failOnLeaks();

const options = runOptionsOf(process.env);
/** Who asks for a length of time watches it; others see the timeline when it fails. */
const isWatched = !options.eachOnce;

test(
  "under random faults of replicas, database, broker and connections nothing is lost, reordered, moved by a lost claim, or repeated without need",
  async () => {
    const print = (line: string) => {
      if (isWatched || line.includes("SVC_FAULTS_SEED")) process.stderr.write(`${line}\n`);
    };
    const result = await runFaults(services, { ...options, print });
    const { acknowledged, repeated, claims, longestMs, parked, faults } = result;
    const list = [...faults].map(([kind, count]) => `${count} ${kind}`).join(", ");
    print(
      `${acknowledged} messages, ${claims} claims of rows, ${repeated} messages came more than once; ${Math.round(longestMs)} ms from the acknowledgement to the delivery at most; ${parked.retried} parked rows retried and ${parked.discarded} discarded; faults: ${list}`,
    );
    expect(acknowledged).toBeGreaterThan(0);
    if (options.eachOnce) expect(result.neverCarriedOut).toEqual([]);
  },
  longestRunMs(options.durationMs),
);
