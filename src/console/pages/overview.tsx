import { Chart } from "../chart.tsx";
import { count, duration, plural, UNKNOWN } from "../format.ts";
import { useLive } from "../live.tsx";
import { link } from "../router.ts";
import type { DestinationOverview, Overview, Replica, SourceOverview } from "../types.ts";
import { Badge, PageTitle, Section, Table, Time } from "../ui.tsx";

/** The whole fleet at a glance; everything here comes with the live events. */
export function OverviewPage() {
  const { overview, state } = useLive();
  return (
    <>
      <PageTitle>Overview</PageTitle>
      {overview === undefined ? (
        <p class="quiet">{state === "unavailable" ? "The database does not answer." : "Loading…"}</p>
      ) : (
        <OverviewBody overview={overview} />
      )}
    </>
  );
}

function OverviewBody({ overview }: { readonly overview: Overview }) {
  const { outbox, replicas, sources, destinations, unrouted } = overview;
  const dead = `${count(outbox?.dead)}${outbox?.dead === 2000 ? " or more" : ""}`;
  return (
    <>
      <Problems of={overview.problems} />
      <ul class="tiles">
        <Tile name="Waiting" value={count(outbox?.pending)} href={link(["messages"], { state: "pending" })} />
        <Tile name="Oldest" value={duration(outbox?.oldestAgeMs)} />
        <Tile name="Blocked keys" value={count(outbox?.blockedKeys)} href={link(["blocked"])} />
        <Tile name="Parked" value={count(outbox?.parked)} href={link(["failures"], { state: "parked" })} />
        <Tile name="Dead" value={dead} href={link(["failures"], { state: "dead" })} />
        <Tile name="Replicas" value={count(replicas?.length)} />
      </ul>
      <Section title="Destinations">
        <div class="cards">
          {destinations.map((each) => (
            <DestinationCard key={each.name} destination={each} at={overview.at} />
          ))}
        </div>
        {unrouted.dead + unrouted.parked === 0 ? null : (
          <p>
            <a href={link(["failures"])}>No destination</a>: {count(unrouted.parked)} parked, {count(unrouted.dead)}{" "}
            dead.
          </p>
        )}
        {destinations.length === 0 ? <p class="quiet">The configuration has no destination.</p> : null}
      </Section>
      <Section title="Sources">
        <div class="cards">
          {sources.map((each) => (
            <SourceCard key={each.name} source={each} at={overview.at} />
          ))}
        </div>
        {sources.length === 0 ? <p class="quiet">The configuration has no source.</p> : null}
      </Section>
      {overview.cells === undefined ? null : (
        <Section title="Cells">
          <Table
            caption="Cells of the installation"
            rows={overview.cells}
            keyOf={({ name }) => name}
            empty=""
            columns={[
              { title: "Cell", cell: ({ name }) => name },
              { title: "State", cell: ({ awaySince }) => <Badge>{awaySince === null ? "ok" : "away"}</Badge> },
              { title: "Away since", cell: ({ awaySince }) => <Time at={awaySince} /> },
              { title: "Reason", cell: ({ reason }) => reason ?? UNKNOWN, isWide: true },
            ]}
          />
        </Section>
      )}
      <Section title="Replicas">
        {replicas === null ? (
          <p class="quiet">Not known: the table of the processes is missing. The log at startup says what to do.</p>
        ) : (
          <Replicas replicas={replicas} />
        )}
      </Section>
      {outbox === null ? null : (
        <p class="quiet">
          Counted at <Time at={outbox.asOf} />, by destination at <Time at={outbox.destinationsAsOf} />.
        </p>
      )}
    </>
  );
}

/** The lines that `svc status` begins with. */
export function Problems({ of }: { readonly of: Overview["problems"] }) {
  return (
    <ul>
      {of.map(({ text, reason, destination }) => (
        <li key={text} class="note warn">
          {destination === null ? text : <a href={link(["destinations", destination])}>{text}</a>}
          {reason === null ? null : `: ${reason}`}
        </li>
      ))}
    </ul>
  );
}

function Tile({ name, value, href }: { readonly name: string; readonly value: string; readonly href?: string }) {
  return (
    <li class="tile">
      <span class="name">{href === undefined ? name : <a href={href}>{name}</a>}</span>
      <span class="value">{value}</span>
    </li>
  );
}

/** The newest minute may still be counted, so the one before is the last whole one. */
function lastMinute<T extends object>(minutes: readonly T[], field: keyof T): number {
  const minute = minutes.at(-2) ?? minutes.at(-1);
  return minute === undefined ? 0 : Number(minute[field]);
}

const MINUTE_MS = 60_000;

/** The 60 minutes up to an instant; those in which nothing was counted are `none`. */
function wholeHour<T extends { readonly at: string }>(
  minutes: readonly T[],
  at: string,
  none: Omit<T, "at">,
): readonly T[] {
  const counted = new Map(minutes.map((each) => [Date.parse(each.at), each]));
  const last = Math.floor(Date.parse(at) / MINUTE_MS) * MINUTE_MS;
  return Array.from({ length: 60 }, (_, n) => {
    const minute = last - (59 - n) * MINUTE_MS;
    return counted.get(minute) ?? ({ ...none, at: new Date(minute).toISOString() } as T);
  });
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

function DestinationCard({ destination, at }: { readonly destination: DestinationOverview; readonly at: string }) {
  const { name, state, backlog, oldestAgeMs, dead, parked, blockedKeys } = destination;
  return (
    <article class="card" aria-label={`Destination ${name}`}>
      <h3>
        <a href={link(["destinations", name])}>{name}</a> <Badge>{state}</Badge>
      </h3>
      <p class="figures">
        <span>{count(backlog)} waiting</span>
        <span>oldest {duration(oldestAgeMs)}</span>
        <span>{count(parked)} parked</span>
        <span>{count(blockedKeys)} blocked keys</span>
        <span>{count(dead)} dead</span>
      </p>
      <DestinationChart destination={destination} at={at} />
    </article>
  );
}

/** Its deliveries of the last hour. */
export function DestinationChart({
  destination,
  at,
}: {
  readonly destination: DestinationOverview;
  readonly at: string;
}) {
  const { name } = destination;
  if (destination.minutes === null) return <p class="quiet">No figures: the table of the figures is missing.</p>;
  const minutes = wholeHour(destination.minutes, at, { sent: 0, failed: 0, dead: 0 });
  const sent = minutes.map((each) => each.sent);
  const failed = minutes.map((each) => each.failed + each.dead);
  return (
    <Chart
      label={`${name}, last hour: ${plural(sum(sent), "delivery", "deliveries")}, ${plural(sum(failed), "failed attempt")}. Last minute: ${lastMinute(minutes, "sent")} sent.`}
      times={minutes.map(({ at }) => at)}
      series={[
        { name: "sent a minute", color: "--series-1", values: sent },
        { name: "failed", color: "--series-2", dash: [4, 3], values: failed },
      ]}
    />
  );
}

function SourceCard({ source, at }: { readonly source: SourceOverview; readonly at: string }) {
  const { name, consumption, pending, oldestAgeMs } = source;
  const none = { received: 0, duplicate: 0, filtered: 0, dead: 0, refused: 0 };
  const minutes = wholeHour(source.minutes ?? [], at, none);
  const received = minutes.map((each) => each.received);
  const duplicate = minutes.map((each) => each.duplicate + each.filtered);
  const refused = minutes.map((each) => each.refused);
  return (
    <article class="card" aria-label={`Source ${name}`}>
      <h3>
        {name} <Badge>{consumption}</Badge>
      </h3>
      <p class="figures">
        <span>{count(pending)} in the inbox</span>
        <span>oldest {duration(oldestAgeMs)}</span>
      </p>
      {source.minutes === null ? (
        <p class="quiet">No figures: the table of the figures is missing.</p>
      ) : (
        <Chart
          label={`${name}, last hour: ${plural(sum(received), "message")} received, ${count(sum(duplicate))} duplicate or filtered, ${count(sum(refused))} refused. Last minute: ${lastMinute(minutes, "received")} received.`}
          times={minutes.map(({ at }) => at)}
          series={[
            { name: "received a minute", color: "--series-1", values: received },
            { name: "duplicate or filtered", color: "--series-3", dash: [2, 3], values: duplicate },
            { name: "refused", color: "--series-2", dash: [4, 3], values: refused },
          ]}
        />
      )}
    </article>
  );
}

function Replicas({ replicas }: { readonly replicas: readonly Replica[] }) {
  return (
    <Table
      caption="Processes that are alive"
      rows={replicas}
      keyOf={({ name }) => name}
      empty="No process has reported within the last minute."
      columns={[
        { title: "Name", cell: ({ name }) => <span class="mono">{name}</span> },
        { title: "Roles", cell: ({ roles: own }) => own.join(", ") || UNKNOWN },
        { title: "Version", cell: ({ version }) => version },
        { title: "Started", cell: ({ startedAt }) => <Time at={startedAt} /> },
        { title: "Seen", cell: ({ seenAt }) => <Time at={seenAt} isRelative /> },
      ]}
    />
  );
}
