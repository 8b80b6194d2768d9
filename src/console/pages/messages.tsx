import { useEffect, useState } from "preact/hooks";
import { withQuery } from "../api.ts";
import { count, instantOf, UNKNOWN } from "../format.ts";
import { useLive } from "../live.tsx";
import { useResource } from "../resource.ts";
import { go, link, type Place } from "../router.ts";
import type { FoundMessage, MessagePage } from "../types.ts";
import {
  Badge,
  Choice,
  type Column,
  cellColumn,
  isNarrow,
  Loading,
  MessageLink,
  PageTitle,
  Section,
  Table,
  TextField,
  Time,
} from "../ui.tsx";

const FILTERS = [
  ...(["text", "key", "source", "topic", "destination", "state", "createdAfter", "createdBefore"] as const),
];
type Filter = Readonly<Record<(typeof FILTERS)[number], string>>;

const STATES = [
  ["", "any"],
  ...["pending", "processing", "sent", "processed", "dead"].map((state) => [state, state] as const),
] as const;

const UUID = /^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$/i;

/** Of a page. */
const MANY = 50;
const FEW = 15;

/** Messages, newest first, with search, filters and pages. The filters are in the address. */
export function MessagesPage({ place }: { readonly place: Place }) {
  const values = FILTERS.map((name) => [name, place.query.get(name) ?? ""] as const);
  const filter = Object.fromEntries(values) as Filter;
  const address = withQuery("admin/messages", { ...filter, limit: isNarrow() ? FEW : MANY });
  return (
    <>
      <PageTitle>Messages</PageTitle>
      <Search key={`form ${address}`} filter={filter} />
      <Results key={address} address={address} />
    </>
  );
}

function Search({ filter }: { readonly filter: Filter }) {
  const [own, setOwn] = useState<Filter>(filter);
  const { overview } = useLive();
  const set = (name: keyof Filter) => (value: string) => setOwn((before) => ({ ...before, [name]: value }));
  const submit = (event: Event): void => {
    event.preventDefault();
    const text = own.text.trim();
    go(UUID.test(text) ? link(["messages", text]) : link(["messages"], { ...own, text }));
  };
  const isMoreSet = [own.key, own.source, own.topic, own.createdAfter, own.createdBefore].some((value) => value !== "");
  const destinations = (overview?.destinations ?? []).map(({ name }) => [name, name] as const);
  const sources = (overview?.sources ?? []).map(({ name }) => [name, name] as const);
  return (
    <search>
      <form class="filters" onSubmit={submit}>
        <TextField
          label="Find"
          type="search"
          value={own.text}
          onValue={set("text")}
          hint="Id, idempotency key, correlation id or key."
        />
        <Choice label="State" value={own.state} onValue={set("state")} options={STATES} />
        <Choice
          label="Destination"
          value={own.destination}
          onValue={set("destination")}
          options={known(destinations, own.destination)}
        />
        <div class="actions">
          <button type="submit" class="primary">
            Search
          </button>
          <a class="button" href={link(["messages"])}>
            Clear
          </a>
        </div>
        <details open={isMoreSet}>
          <summary>More filters</summary>
          <div class="more">
            <Choice label="Source" value={own.source} onValue={set("source")} options={known(sources, own.source)} />
            <TextField label="Key" value={own.key} onValue={set("key")} />
            <TextField label="Topic" value={own.topic} onValue={set("topic")} />
            <TimeField label="Created after (UTC)" value={own.createdAfter} onValue={set("createdAfter")} />
            <TimeField label="Created before (UTC)" value={own.createdBefore} onValue={set("createdBefore")} />
          </div>
        </details>
      </form>
    </search>
  );
}

const known = (
  names: readonly (readonly [string, string])[],
  value: string,
): readonly (readonly [string, string])[] => [
  ["", "any"],
  ...names,
  ...(value === "" || names.some(([name]) => name === value) ? [] : [[value, value] as const]),
];

function TimeField(props: {
  readonly label: string;
  readonly value: string;
  readonly onValue: (value: string) => void;
}) {
  const { label, value, onValue } = props;
  return (
    <TextField
      label={label}
      type="datetime-local"
      value={value.slice(0, 19)}
      onValue={(entered) => onValue(instantOf(entered) ?? "")}
    />
  );
}

function Results({ address }: { readonly address: string }) {
  /** The cursors of the pages so far; the first page has none. */
  const [cursors, setCursors] = useState<readonly string[]>([]);
  const cursor = cursors.at(-1);
  const { beat } = useLive();
  const path = cursor === undefined ? address : withParameter(address, "cursor", cursor);
  // The newest page shows what comes; an older one stays as it is read.
  const resource = useResource<MessagePage>(path, cursor === undefined ? beat : 0);
  const { data } = resource;
  const [seen, setSeen] = useState("");
  useEffect(() => {
    if (data !== undefined) setSeen(`${count(data.messages.length)} messages on page ${cursors.length + 1}`);
  }, [data, cursors.length]);
  return (
    <>
      <p class="unseen" role="status">
        {seen}
      </p>
      <Loading resource={resource} />
      {data === undefined ? null : (
        <>
          <Table
            caption="Messages, newest first"
            rows={data.messages}
            keyOf={({ id, table }) => table + id}
            empty={emptyText(data)}
            columns={[...COLUMNS.slice(0, 2), ...cellColumn(data.messages), ...COLUMNS.slice(2)]}
          />
          <Filtered rows={data.filtered ?? []} />
          <nav class="actions" aria-label="Pages">
            <button type="button" disabled={cursors.length === 0} onClick={() => setCursors(cursors.slice(0, -1))}>
              Newer
            </button>
            <button
              type="button"
              disabled={data.cursor === null}
              onClick={() => data.cursor !== null && setCursors([...cursors, data.cursor])}
            >
              {data.messages.length === 0 && data.cursor !== null ? "Search on" : "Older"}
            </button>
            <span class="quiet">Page {cursors.length + 1}</span>
          </nav>
        </>
      )}
    </>
  );
}

/** Messages that a filter dropped leave no row: they are listed apart. */
function Filtered({ rows }: { readonly rows: NonNullable<MessagePage["filtered"]> }) {
  if (rows.length === 0) return null;
  return (
    <Section title="Dropped by a filter">
      <Table
        caption="Messages that a filter dropped, newest first"
        rows={rows}
        keyOf={({ at, source, idempotencyKey }) => `${at} ${source} ${idempotencyKey}`}
        empty=""
        columns={[
          { title: "Received", cell: ({ at }) => <Time at={at} /> },
          { title: "Source", cell: ({ source }) => source },
          { title: "Idempotency key", cell: ({ idempotencyKey }) => idempotencyKey ?? UNKNOWN, isWide: true },
          { title: "Correlation id", cell: ({ correlationId }) => correlationId ?? UNKNOWN, isWide: true },
        ]}
      />
    </Section>
  );
}

function emptyText({ cursor }: MessagePage): string {
  if (cursor === null) return "No message matches.";
  return "None of the rows that were read so far matches. Search on to read older ones.";
}

function withParameter(path: string, name: string, value: string): string {
  return `${path}${path.includes("?") ? "&" : "?"}${name}=${encodeURIComponent(value)}`;
}

const COLUMNS: readonly Column<FoundMessage>[] = [
  { title: "Created", cell: ({ createdAt }) => <Time at={createdAt} /> },
  { title: "Message", cell: ({ id }) => <MessageLink id={id} /> },
  { title: "Topic", cell: ({ topic }) => topic ?? UNKNOWN, isWide: true },
  { title: "Key", cell: ({ key }) => key ?? UNKNOWN, isWide: true },
  {
    title: "Destination",
    cell: ({ destination, expandedTo }) =>
      expandedTo === null ? (destination ?? UNKNOWN) : `expanded to ${count(expandedTo)}`,
  },
  { title: "State", cell: ({ state }) => <Badge>{state}</Badge> },
  { title: "Failed", cell: ({ attempt }) => count(attempt), isNumber: true },
  { title: "Last error", cell: ({ lastError }) => <span class="reason">{lastError ?? UNKNOWN}</span>, isWide: true },
];
