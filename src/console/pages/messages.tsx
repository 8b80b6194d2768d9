import { useEffect, useState } from "preact/hooks";
import { withQuery } from "../api.ts";
import { count, instantOf, UNKNOWN } from "../format.ts";
import { type Options, useLive, useNames } from "../live.tsx";
import { go, link, type Place } from "../router.ts";
import type { FoundMessage, MessagePage } from "../types.ts";
import {
  Badge,
  Choice,
  type Column,
  cellColumn,
  LAST_ERROR,
  MessageLink,
  Pages,
  PageTitle,
  Section,
  Table,
  TextField,
  Time,
  UUID,
} from "../ui.tsx";

const FILTERS = ["text", "key", "source", "topic", "destination", "state", "createdAfter", "createdBefore"] as const;
type Filter = Readonly<Record<(typeof FILTERS)[number], string>>;

const STATES = [
  ["", "any"],
  ...["pending", "processing", "sent", "processed", "dead"].map((state) => [state, state] as const),
] as const;

/** Of a page. */
const MOST = 50;
/** Of a page in a narrow window, as in style.css. */
const FEW = 15;

/** Messages, newest first, with search, filters and pages. The filters are in the address. */
export function MessagesPage({ place }: { readonly place: Place }) {
  const values = FILTERS.map((name) => [name, place.query.get(name) ?? ""] as const);
  const filter = Object.fromEntries(values) as Filter;
  const address = withQuery("admin/messages", {
    ...filter,
    limit: matchMedia("(max-width: 48rem)").matches ? FEW : MOST,
  });
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
  const set = (name: keyof Filter) => (value: string) => setOwn((before) => ({ ...before, [name]: value }));
  const submit = (event: Event): void => {
    event.preventDefault();
    const text = own.text.trim();
    go(UUID.test(text) ? link(["messages", text]) : link(["messages"], { ...own, text }));
  };
  const isMoreSet = [own.key, own.source, own.topic, own.createdAfter, own.createdBefore].some((value) => value !== "");
  const [destinations, sources] = [useNames("destinations"), useNames("sources")];
  return (
    <search>
      <form class="grid" onSubmit={submit}>
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
          <div class="grid">
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

const known = (names: Options, value: string): Options => [
  ["", "any"],
  ...names,
  ...(value === "" || names.some(([name]) => name === value) ? [] : [[value, value] as const]),
];

interface TimeFieldProps {
  readonly label: string;
  readonly value: string;
  readonly onValue: (value: string) => void;
}

function TimeField({ label, value, onValue }: TimeFieldProps) {
  const props = { label, type: "datetime-local", value: value.slice(0, 19) } as const;
  return <TextField {...props} onValue={(entered) => onValue(instantOf(entered) ?? "")} />;
}

function Results({ address }: { readonly address: string }) {
  const { beat } = useLive();
  const of = (cursor: string | undefined) => (cursor ? `${address}&cursor=${encodeURIComponent(cursor)}` : address);
  return (
    <Pages<MessagePage> of={of} beat={beat}>
      {(data, page) => (
        <>
          <Seen>{`${count(data.messages.length)} messages on page ${page}`}</Seen>
          <Table
            caption="Messages, newest first"
            rows={data.messages}
            empty={data.cursor === null ? "No message matches." : NONE_YET}
            columns={[...COLUMNS.slice(0, 2), ...cellColumn(data.messages), ...COLUMNS.slice(2)]}
          />
          <Filtered rows={data.filtered ?? []} />
        </>
      )}
    </Pages>
  );
}

const NONE_YET = "None of the rows read so far matches. Continue with older rows.";

/** For screen readers: a text that comes after its place is there is read. */
function Seen({ children }: { readonly children: string }) {
  const [seen, setSeen] = useState("");
  useEffect(() => setSeen(children), [children]);
  return (
    <p class="unseen" role="status">
      {seen}
    </p>
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
        columns={[
          { title: "Received", cell: ({ at }) => <Time at={at} /> },
          { title: "Source", cell: ({ source }) => source },
          { title: "Idempotency key", is: "wide", cell: ({ idempotencyKey }) => idempotencyKey },
          { title: "Correlation id", is: "wide", cell: ({ correlationId }) => correlationId },
        ]}
      />
    </Section>
  );
}

const COLUMNS: readonly Column<FoundMessage>[] = [
  { title: "Created", cell: ({ createdAt }) => <Time at={createdAt} /> },
  { title: "Message", cell: ({ id }) => <MessageLink id={id} /> },
  { title: "Topic", is: "wide", cell: ({ topic }) => topic },
  { title: "Key", is: "wide", cell: ({ key }) => key },
  {
    title: "Destination",
    cell: ({ destination, expandedTo }) =>
      expandedTo === null ? (destination ?? UNKNOWN) : `expanded to ${count(expandedTo)}`,
  },
  { title: "State", cell: ({ state }) => <Badge>{state}</Badge> },
  { title: "Failed", cell: ({ attempt }) => count(attempt), is: "number" },
  LAST_ERROR,
];
