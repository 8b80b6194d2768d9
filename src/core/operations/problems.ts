import { RECENT_MINUTES } from "../../ports/destinationStore.ts";
import type { OverviewShown, Problem } from "./shown.ts";
import { durationText } from "./timeline.ts";

/** What an operator should look at first, for `svc status` and the console alike. @param minutes of the figures */
export function problemsOf(shown: Omit<OverviewShown, "problems">, minutes: number): readonly Problem[] {
  const { replicas, roles, sources, destinations, relayEnabled, cells = [] } = shown;
  const runs = (role: string) => roles === null || (roles[role]?.replicas ?? 0) > 0;
  const versions = [...new Set(replicas?.map(({ version }) => version))].sort();
  const isReceiving = sources.some(({ pending }) => (pending ?? 0) > 0);
  const about = (text: string, applies: boolean, reason: string | null = null): readonly Problem[] =>
    applies ? [{ text, reason, destination: null }] : [];
  return [
    ...cells.flatMap(({ name, awaySince, reason }) =>
      about(`the cell ${name} does not answer, and its figures are missing`, awaySince !== null, reason),
    ),
    ...about(
      "the replicas are not known: the table of the processes cannot be read (docs/status.md)",
      replicas === null,
    ),
    ...(replicas ?? []).flatMap(({ name, clockAheadMs }) =>
      about(
        `the clock of ${name} is ${durationText(Math.abs(clockAheadMs))} ${clockAheadMs > 0 ? "ahead of" : "behind"} the database's: synchronize them, or signatures with a time may be refused`,
        clockAheadMs !== 0,
      ),
    ),
    ...about(`several versions run at once, finish the upgrade: ${versions.join(", ")}`, versions.length > 1),
    ...about("no poller is alive, and nothing is delivered: start one (svc poller)", !runs("poller")),
    ...about("no relay is alive, and messages wait in the inbox: start one (svc relay)", isReceiving && !runs("relay")),
    ...about("inbox.relay.enabled is false: messages wait in the inbox", isReceiving && !relayEnabled),
    ...remarksOf(shown, minutes).flatMap((remark) => about(remark, true)),
    ...destinations.flatMap((destination) => problemOf(destination, shown.at)),
  ];
}

function problemOf(destination: OverviewShown["destinations"][number], at: Date): readonly Problem[] {
  const { name, state, pause, breaker, parked, recent, lastDiedAt, lastFailureAt, lastError } = destination;
  const { sent, failed, dead } = recent ?? { sent: 0, failed: 0, dead: 0 };
  const failures = failed + dead;
  const total = sent + failures;
  const died = `${dead === 1 ? "1 row" : `${dead} rows`} died`;
  const isFailing = state === "failing";
  const mostFail = isFailing && failures * 2 > total;
  const details = [
    state === "slow" && "deliveries take over a second, or their answers do not end",
    mostFail && `${failures} of ${total} deliveries ${LATELY} failed (${Math.round((100 * failures) / total)} %)`,
    isFailing && !mostFail && `none has succeeded since the failure at ${lastFailureAt?.toISOString()}`,
    dead > 0 && (mostFail ? died : `${died} ${LATELY}`),
    dead === 0 &&
      diedWithinDay(lastDiedAt, at) &&
      `${destination.dead} rows died, the last at ${lastDiedAt?.toISOString()} (svc replay --state dead --destination ${name} --dry-run)`,
    (parked ?? 0) > 0 && `${rows(parked ?? 0)} parked (svc parked list)`,
  ].filter((detail) => detail !== false);
  const isWell = state === "ok" || state === "unknown";
  if (isWell && details.length === 0) return [];
  const reason = isWell || state === "slow" ? null : (pause?.reason ?? breaker?.reason ?? lastError);
  const head = isWell ? name : `${name} is ${state}`;
  return [{ text: [head, details.join(", ")].filter(Boolean).join(": "), reason, destination: name }];
}

const LATELY = `in the last ${RECENT_MINUTES} minutes`;
const rows = (count: number): string => (count === 1 ? "1 row is" : `${count} rows are`);

/** What is wrong with messages rather than with a part of the installation, a sentence each. */
function remarksOf(
  { at, sources, unrouted }: Pick<OverviewShown, "at" | "sources" | "unrouted">,
  minutes: number,
): readonly string[] {
  const period = `in the last ${minutes} minutes`;
  const { dead, parked, lastDiedAt, topics } = unrouted;
  return [
    ...sources.flatMap(({ name, refusals }) => {
      const counts = Object.entries(refusals ?? {}).toSorted(([, a], [, b]) => b - a);
      const all = counts.reduce((sum, [, count]) => sum + count, 0);
      const reasons = counts.map(([reason, count]) => `${reason} (${count})`).join(", ");
      return all === 0 ? [] : [`${name} refused ${all === 1 ? "1 request" : `${all} requests`} ${period}: ${reasons}`];
    }),
    ...sources.flatMap(({ name, withoutAggregateId, minutes: counted }) => {
      const all = (counted ?? []).reduce((sum, { received, duplicate }) => sum + received + duplicate, 0);
      if (withoutAggregateId === null || withoutAggregateId === 0 || withoutAggregateId < all) return [];
      return [
        `no message of ${name} had its configured aggregate id ${period}: they have no order; correct the source`,
      ];
    }),
    ...(diedWithinDay(lastDiedAt, at) || parked > 0
      ? [`${rowsHave(dead + parked)} no destination (svc explain topic); topics: ${topics.join(", ")}`]
      : []),
  ];
}

/** Somebody who comes in the morning must find what died at night. */
const diedWithinDay = (lastDiedAt: Date | null, at: Date): boolean =>
  lastDiedAt !== null && at.getTime() - lastDiedAt.getTime() < DAY_MS;

const DAY_MS = 86_400_000;
const rowsHave = (count: number): string => (count === 1 ? "1 row has" : `${count} rows have`);
