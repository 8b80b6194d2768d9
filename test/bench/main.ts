import { blockedKeys, excludedFront, finishedMillions } from "./backlog.ts";
import { drainToBrokers } from "./brokers.ts";
import { captureLatency } from "./capture.ts";
import { cells } from "./cells.ts";
import { endToEnd } from "./endToEnd.ts";
import { openEnvironment } from "./environment.ts";
import { fanOut } from "./fanOut.ts";
import { fanOutOutage } from "./fanOutOutage.ts";
import { fleet, SETTINGS_OF_FLEET } from "./fleet.ts";
import { hangingCell } from "./hangingCell.ts";
import { history } from "./history.ts";
import { isolation } from "./isolation.ts";
import { latency } from "./latency.ts";
import { limits } from "./limits.ts";
import { peers } from "./peers.ts";
import { pinnedSnapshot } from "./pinnedSnapshot.ts";
import { receipt, receiptBatches, receiptSlowCommits } from "./receipts.ts";
import { hotKey, replicas } from "./replicas.ts";
import { type Figure, printTable } from "./report.ts";
import { claimCost, drain, relayCost } from "./scenarios.ts";
import { soak } from "./soak.ts";
import { volume } from "./volume.ts";

/**
 * `npm run bench [-- name...]`: every figure as a ratio to a baseline in the same run, or as an absolute where none makes sense. The
 * database, the sender and the receiver run on the same machine as what is measured.
 */
const SCENARIOS = {
  drain,
  receipt,
  receiptSlowCommits,
  receiptBatches,
  endToEnd,
  fanOut,
  fanOutOutage,
  claimCost,
  relayCost,
  drainToBrokers,
  latency,
  captureLatency,
  replicas,
  fleet,
  cells,
  hangingCell,
  hotKey,
  history,
  isolation,
  limits,
  peers,
  blockedKeys,
  finishedMillions,
  excludedFront,
  pinnedSnapshot,
  soak,
  volume,
} as const;

const wanted = process.argv.slice(2);
const known = Object.keys(SCENARIOS);
const unknown = wanted.filter((name) => !known.includes(name));
if (unknown.length > 0) {
  process.stderr.write(`no benchmark ${unknown.join(", ")}: there are ${known.join(", ")}\n`);
  process.exit(2);
}
const figures: Figure[] = [];
for (const [name, scenario] of Object.entries(SCENARIOS)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  process.stderr.write(`running ${name}\n`);
  // A database of its own for each, so that no scenario works on the leavings of another.
  const environment = await openEnvironment(name === "fleet" ? SETTINGS_OF_FLEET : {});
  try {
    figures.push(...(await scenario(environment)));
  } finally {
    await environment.close();
  }
}
printTable(figures);
