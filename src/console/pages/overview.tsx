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
      <ul class="grid">
        <Tile name="Waiting" value={count(outbox?.pending)} href={link(["messages"], { state: "pending" })} />
        <Tile name="Oldest" value={duration(outbox?.oldestAgeMs)} />
        <Tile name="Blocked keys" value={count(outbox?.blockedKeys)} href={link(["blocked"])} />
        <Tile name="Parked" value={count(outbox?.parked)} href={link(["failures"], { state: "parked" })} />
        <Tile name="Dead" value={dead} href={link(["failures"], { state: "dead" })} />
        <Tile name="Replicas" value={count(replicas?.length)} />
      </ul>
      <Section title="Destinations">
        <div class="grid large">
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
        <div class="grid large">
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
            columns={[
              { title: "Cell", cell: ({ name }) => name },
              { title: "State", cell: ({ awaySince }) => <Badge>{awaySince === null ? "ok" : "away"}</Badge> },
              { title: "Away since", cell: ({ awaySince }) => <Time at={awaySince} /> },
              { title: "Reason", is: "wide", cell: ({ reason }) => reason },
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
          Counted at <Time at={outbox.asOf} />.
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
    <li class="card">
      <span class="quiet">{href === undefined ? name : <a href={href}>{name}</a>}</span>
      <span class="value">{value}</span>
    </li>
  );
}

function DestinationCard({ destination, at }: { readonly destination: DestinationOverview; readonly at: string }) {
  const { name, state, backlog, oldestAgeMs, dead, parked, blockedKeys } = destination;
  return (
    <article class="card" aria-label={`Destination ${name}`}>
      <h3>
        <a href={link(["destinations", name])}>{name}</a> <Badge>{state}</Badge>
      </h3>
      <p class="figures quiet">
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

interface DestinationChartProps {
  readonly destination: DestinationOverview;
  readonly at: string;
}

/** Its deliveries of the last hour. */
export function DestinationChart({ destination: { name, minutes }, at }: DestinationChartProps) {
  const words = (sent: number, failed: number) =>
    `${plural(sent, "delivery", "deliveries")}, ${plural(failed, "failed attempt")}`;
  const lines: Lines<"sent" | "failed" | "dead"> = [
    ["sent a minute", "info", ["sent"]],
    ["failed", "bad", ["failed", "dead"]],
  ];
  return <Chart name={name} minutes={minutes} at={at} lines={lines} words={words} last="sent" />;
}

function SourceCard({ source, at }: { readonly source: SourceOverview; readonly at: string }) {
  const { name, consumption, pending, oldestAgeMs, minutes } = source;
  const words = (received: number, duplicate: number, refused: number) =>
    `${plural(received, "message")} received, ${count(duplicate)} duplicate or filtered, ${count(refused)} refused`;
  const lines: Lines<"received" | "duplicate" | "filtered" | "refused"> = [
    ["received a minute", "info", ["received"]],
    ["duplicate or filtered", "warn", ["duplicate", "filtered"]],
    ["refused", "bad", ["refused"]],
  ];
  return (
    <article class="card" aria-label={`Source ${name}`}>
      <h3>
        {name} <Badge>{consumption}</Badge>
      </h3>
      <p class="figures quiet">
        <span>{count(pending)} in the inbox</span>
        <span>oldest {duration(oldestAgeMs)}</span>
      </p>
      <Chart name={name} minutes={minutes} at={at} lines={lines} words={words} last="received" />
    </article>
  );
}

/** Of each line its name, tone and counters. */
type Lines<C extends string> = readonly (readonly [name: string, tone: string, counters: readonly C[]])[];

interface ChartProps<C extends string> {
  readonly name: string;
  readonly minutes: readonly ({ readonly at: string } & Readonly<Record<C, number>>)[] | null;
  readonly at: string;
  readonly lines: Lines<C>;
  /** What it shows, from the sum of each line: a screen reader gets nothing else. */
  readonly words: (...sums: readonly [number, number, number]) => string;
  readonly last: string;
}

const MINUTE_MS = 60_000;
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** The 60 minutes up to an instant; a minute without figures counts as 0. */
function Chart<C extends string>({ name, minutes, at, lines, words, last }: ChartProps<C>) {
  if (minutes === null) return <p class="quiet">No figures: their table is missing. See the log at startup.</p>;
  const counted = new Map(minutes.map((each) => [Date.parse(each.at), each]));
  const end = Math.floor(Date.parse(at) / MINUTE_MS) * MINUTE_MS;
  const times = Array.from({ length: 60 }, (_, n) => end - (59 - n) * MINUTE_MS);
  const series = lines.map(([title, tone, counters]) => {
    const values = times.map((time) => counters.reduce((sum, each) => sum + (counted.get(time)?.[each] ?? 0), 0));
    return { title, tone, values, sum: values.reduce((total, value) => total + value, 0) };
  });
  const highest = Math.max(1, ...series.flatMap(({ values }) => values));
  const [first = 0, second = 0, third = 0] = series.map(({ sum }) => sum);
  // The newest minute is still counted: the one before is the last whole one.
  const whole = series[0]?.values.at(-2) ?? 0;
  const clock = (time: number | undefined) => new Date(time ?? 0).toISOString().slice(11, 16);
  return (
    <figure class="chart">
      <span class="quiet" aria-hidden="true">
        {SHORT.format(highest)}
      </span>
      <svg
        role="img"
        aria-label={`${name}, last hour: ${words(first, second, third)}. Last minute: ${count(whole)} ${last}.`}
        viewBox="0 0 59 100"
        preserveAspectRatio="none"
      >
        {series.map(({ title, tone, values }) => (
          <polyline
            key={title}
            class={tone}
            points={values.map((value, n) => `${n},${100 - (100 * value) / highest}`).join(" ")}
          />
        ))}
      </svg>
      <figcaption>
        <span>{clock(times[0])}</span>
        {series.map(({ title, tone }) => (
          <span key={title}>
            <svg width="20" height="8" aria-hidden="true">
              <line class={tone} x1="0" y1="4" x2="20" y2="4" />
            </svg>{" "}
            {title}
          </span>
        ))}
        <span>{clock(times.at(-1))}</span>
      </figcaption>
    </figure>
  );
}

function Replicas({ replicas }: { readonly replicas: readonly Replica[] }) {
  return (
    <Table
      caption="Processes that are alive"
      rows={replicas}
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
