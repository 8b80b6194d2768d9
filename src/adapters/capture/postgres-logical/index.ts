import type pg from "pg";
import type { ChangeLog, LogPosition } from "../../../ports/capture.ts";
import type { Metrics } from "../../../ports/metrics.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { Clock } from "../../../time/clock.ts";
import { connect, disconnect, type ServerAddress } from "./connection.ts";
import type { Names } from "./faults.ts";
import { checkKept, checkServer, prepareSlot, SlotWatch } from "./slot.ts";
import { formatLsn, parseLsn, streamChanges } from "./stream.ts";

export interface PostgresLogicalOptions {
  readonly server: ServerAddress;
  readonly names: Omit<Names, "username">;
  readonly clock: Clock;
  readonly metrics: Pick<Metrics, "replicationSlotLag" | "replicationSlotStatus">;
  readonly log: Log;
}

/** Follows inserts into the outbox by logical replication with `pgoutput` (spec, "outbox.capture"). */
export function postgresLogical({ server, names, clock, metrics, log }: PostgresLogicalOptions): ChangeLog {
  const [endpoint] = server.endpoints;
  const allNames: Names = { ...names, username: server.username };
  return {
    async follow(from, events, signal) {
      const ending = new AbortController();
      const end = ending.signal;
      const onStop = () => ending.abort(signal.reason);
      signal.addEventListener("abort", onStop, { once: true });
      if (signal.aborted) onStop();
      const onFault = (error: Error) => ending.abort(error);
      const watch = new SlotWatch({ server, names: allNames, metrics, log, onFault, signal: end });
      let client: pg.Client | undefined;
      try {
        const observer = await watch.open();
        const { partitioned } = await checkServer(observer, allNames, endpoint?.host ?? "").catch(async (fault) => {
          await watch.noteLeft();
          throw fault;
        });
        const prepared = await prepareSlot(observer, allNames, from !== null, log);
        watch.note(prepared);
        checkKept(prepared, allNames);
        client = await connect(server, "replication", signal);
        const system = await identify(client);
        const start = startOf(from, system, log);
        const onReached = (position: bigint) => events.reached(positionOf(system, position));
        watch.start();
        await streamChanges({ client, names: allNames, partitioned, start, events, onReached, clock }, end);
        end.throwIfAborted();
      } catch (error) {
        // What an abort breaks off has not failed.
        if (!signal.aborted) throw error;
      } finally {
        signal.removeEventListener("abort", onStop);
        await Promise.all([watch.close(), client === undefined ? undefined : disconnect(client)]);
      }
    },
  };
}

/** Which server this is, and where its log ends. */
interface System {
  readonly id: string;
  readonly end: bigint;
}

async function identify(client: pg.Client): Promise<System> {
  const [row] = (await client.query({ text: "IDENTIFY_SYSTEM", query_timeout: IDENTIFY_TIMEOUT_MS } as pg.QueryConfig))
    .rows;
  return { id: String(row.systemid), end: parseLsn(row.xlogpos) ?? 0n };
}

const IDENTIFY_TIMEOUT_MS = 10_000;

/** Positions of different servers cannot be compared: each carries the identifier of its own. */
function positionOf(system: System, position: bigint): LogPosition {
  return `${system.id}:${formatLsn(position)}`;
}

/** Where to begin: 0 leaves it to the slot, which knows what was confirmed. */
function startOf(from: LogPosition | null, system: System, log: Log): bigint {
  if (from === null) return 0n;
  const [id, lsn = ""] = from.split(":");
  const saved = parseLsn(lsn);
  const found = "beginning where the slot is; rows inserted meanwhile are found by polling";
  if (id !== system.id || saved === undefined) {
    log.warn({ saved: from, server: system.id }, `the saved position is of another server: ${found}`);
    return 0n;
  }
  if (saved > system.end) {
    const end = formatLsn(system.end);
    log.warn(
      { saved: lsn, end },
      `the server's log ends before the saved position (restored from a backup, or failed over): ${found}`,
    );
    return 0n;
  }
  return saved;
}
