import { cells } from "./cells.ts";
import { endToEnd } from "./endToEnd.ts";
import { openEnvironment } from "./environment.ts";
import { fanOut } from "./fanOut.ts";
import { fanOutOutage } from "./fanOutOutage.ts";
import { isolation } from "./isolation.ts";
import { latency } from "./latency.ts";
import { receipt, receiptBatches } from "./receipts.ts";
import { hotKey, replicas } from "./replicas.ts";
import { type Figure, printTable } from "./report.ts";
import { claimCost, drain } from "./scenarios.ts";
import { tracing } from "./tracing.ts";
import { volume } from "./volume.ts";

/**
 * `npm run bench [-- name...]`: every figure as a ratio to a baseline in the same run, or as an absolute if none makes sense. The
 * database, the sender and the receiver run on the same machine as what is measured.
 */
const SCENARIOS = {
  drain,
  receipt,
  receiptBatches,
  endToEnd,
  fanOut,
  fanOutOutage,
  claimCost,
  latency,
  replicas,
  cells,
  hotKey,
  isolation,
  tracing,
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
  const environment = await openEnvironment();
  try {
    figures.push(...(await scenario(environment)));
  } finally {
    await environment.close();
  }
}
printTable(figures);
