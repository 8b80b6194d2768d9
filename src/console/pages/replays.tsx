import { useContext, useEffect, useState } from "preact/hooks";
import { post, postForLines } from "../api.ts";
import { count, instantOf, plural } from "../format.ts";
import { useNames } from "../live.tsx";
import { link, type Place } from "../router.ts";
import type { DryRun, ReplayFilter, ReplayProgress } from "../types.ts";
import {
  Badge,
  Choice,
  cellColumn,
  Dialog,
  ErrorNote,
  MessageLink,
  PageTitle,
  PersonContext,
  Section,
  Table,
  TextField,
  Time,
  useAttempt,
} from "../ui.tsx";

/** A replay: first a dry run, then its progress. It ends with the page. */
export function ReplaysPage({ place }: { readonly place: Place }) {
  const [started, setStarted] = useState<Started | undefined>();
  return (
    <>
      <PageTitle>Replays</PageTitle>
      <NewReplay key={place.query.toString()} query={place.query} isFree={started === undefined} onStart={setStarted} />
      {started === undefined ? null : <Progress key={started} started={started} onNext={setStarted} />}
      <p>
        Replays that ran are in the <a href={link(["audit"])}>audit log</a>.
      </p>
    </>
  );
}

/** What was asked for, and the rows that the dry run counted. */
interface Started {
  readonly request: object;
  readonly total: number;
}

interface Found {
  readonly filter: ReplayFilter;
  readonly run: DryRun;
}

interface NewReplayProps {
  readonly query: URLSearchParams;
  /** No other one runs. */
  readonly isFree: boolean;
  readonly onStart: (started: Started) => void;
}

function NewReplay({ query, isFree, onStart }: NewReplayProps) {
  const [fields, setFields] = useState({
    state: query.get("state") ?? "dead",
    destination: query.get("destination") ?? "",
    reason: query.get("reason") ?? "",
    topic: query.get("topic") ?? "",
    ids: query.get("ids") ?? "",
    createdAfter: "",
    createdBefore: "",
  });
  const [found, setFound] = useState<Found | undefined>();
  const { error, isBusy, attempt } = useAttempt();
  const [isAsking, setAsking] = useState(false);
  const names = useNames("destinations");
  const set = (name: keyof typeof fields) => (value: string) => {
    setFields((before) => ({ ...before, [name]: value }));
    // A dry run counts for the filter that it was made with.
    setFound(undefined);
  };
  const dryRun = attempt(async () => {
    setFound(undefined);
    const filter = filterOf(fields);
    setFound({ filter, run: await post<DryRun>("admin/replays", { ...filter, dryRun: true }) });
  });
  return (
    <>
      <form class="grid" onSubmit={dryRun}>
        <Choice
          label="State"
          value={fields.state}
          onValue={set("state")}
          options={[
            ["dead", "dead"],
            ["sent", "sent"],
            ["", "dead and sent"],
          ]}
        />
        <Choice
          label="Destination"
          value={fields.destination}
          onValue={set("destination")}
          options={[["", "any"], [NO_DESTINATION, "none: no route"], ...names]}
        />
        <TextField
          label="Reason"
          value={fields.reason}
          onValue={set("reason")}
          hint="Exactly, but for numbers and ids."
        />
        <TextField label="Topic" value={fields.topic} onValue={set("topic")} hint="Exactly." />
        <TextField label="Message ids" value={fields.ids} onValue={set("ids")} hint="With commas between them." />
        <TextField
          label="Created after (UTC)"
          type="datetime-local"
          value={fields.createdAfter}
          onValue={set("createdAfter")}
        />
        <TextField
          label="Created before (UTC)"
          type="datetime-local"
          value={fields.createdBefore}
          onValue={set("createdBefore")}
        />
        <div class="actions">
          <button type="submit" class="primary" disabled={isBusy}>
            Dry run
          </button>
          <button
            type="button"
            disabled={!isFree || found === undefined || found.run.count === 0}
            onClick={() => setAsking(true)}
          >
            Replay…
          </button>
        </div>
      </form>
      <ErrorNote>{error}</ErrorNote>
      <div role="status">{found === undefined ? null : <DryRunResult run={found.run} />}</div>
      {found === undefined || !isAsking ? null : (
        <StartDialog
          found={found}
          onClose={() => setAsking(false)}
          onStart={(started) => {
            setFound(undefined);
            onStart(started);
          }}
        />
      )}
    </>
  );
}

/** In an address and a choice; no destination has this name. */
export const NO_DESTINATION = "\0";

function filterOf(fields: Readonly<Record<string, string>>): ReplayFilter {
  const { state, destination, reason, topic, ids = "", createdAfter = "", createdBefore = "" } = fields;
  const named = ids.split(/[\s,]+/).filter((id) => id !== "");
  const [after, before] = [instantOf(createdAfter), instantOf(createdBefore)];
  return {
    ...(state && { state }),
    ...(destination && { destination: destination === NO_DESTINATION ? null : destination }),
    ...(reason && { reason }),
    ...(topic && { topic }),
    ...(named.length > 0 && { ids: named }),
    ...(after && { createdAfter: after }),
    ...(before && { createdBefore: before }),
  };
}

function DryRunResult({ run }: { readonly run: DryRun }) {
  return (
    <>
      <p>
        <strong>
          {run.isExact ? "" : "At least "}
          {plural(run.count, "row")}
        </strong>{" "}
        would be delivered again{run.count === 0 ? "." : ":"}
      </p>
      <Table
        caption="The rows by reason, topic and destination"
        rows={run.groups}
        columns={[
          { title: "Rows", cell: (group) => count(group.count), is: "number" },
          { title: "Destination", cell: ({ destination }) => destination ?? "none" },
          { title: "Topic", is: "wide", cell: ({ topic }) => topic },
          { title: "Reason", is: "wide", cell: ({ reason }) => reason },
        ]}
      />
      {run.count === 0 ? null : <p>Such as:</p>}
      <Table
        caption="Sample of the rows"
        rows={run.sample}
        columns={[
          { title: "Created", cell: ({ createdAt }) => <Time at={createdAt} /> },
          { title: "Message", cell: ({ id = "" }) => <MessageLink id={id} /> },
          ...cellColumn(run.sample),
          { title: "Topic", is: "wide", cell: ({ topic }) => topic },
          { title: "Key", is: "wide", cell: ({ key }) => key },
          { title: "State", cell: ({ state = "" }) => <Badge>{state}</Badge> },
        ]}
      />
    </>
  );
}

/** The destination of replayed rows. */
export function ToDestination(field: { readonly value: string; readonly onValue: (value: string) => void }) {
  const options = [["", "their former destination"] as const, ...useNames("destinations")];
  return <Choice label="Deliver to" {...field} options={options} />;
}

interface StartDialogProps {
  readonly found: Found;
  readonly onClose: () => void;
  readonly onStart: (started: Started) => void;
}

function StartDialog({ found: { filter, run }, onClose, onStart }: StartDialogProps) {
  const [perSecond, setPerSecond] = useState("100");
  const [to, setTo] = useState("");
  const { by } = useContext(PersonContext);
  const start = async (): Promise<void> => {
    const how = { perSecond: perSecond === "" ? null : Number(perSecond), toDestination: to || null };
    onStart({ request: { ...filter, ...how, by }, total: run.count });
  };
  return (
    <Dialog
      title={`Replay ${run.isExact ? "" : "at least "}${plural(run.count, "row")}?`}
      action="Start replay"
      onConfirm={start}
      onClose={onClose}
    >
      <p>
        They are delivered again under the same ids, in order per key. Keep the page open: leaving it ends the replay;
        what has moved stays moved.
      </p>
      <ToDestination value={to} onValue={setTo} />
      <TextField
        label="Rows a second"
        type="number"
        value={perSecond}
        onValue={setPerSecond}
        hint="1 to 100000. Empty: no limit."
      />
    </Dialog>
  );
}

interface ProgressProps {
  readonly started: Started;
  /** Starts the rest of it; undefined closes it. */
  readonly onNext: (next: Started | undefined) => void;
}

function Progress({ started: { request, total }, onNext }: ProgressProps) {
  const [line, setLine] = useState<ReplayProgress>({ moved: 0 });
  const [running] = useState(() => new AbortController());
  const { announce } = useContext(PersonContext);
  useEffect(() => {
    const follow = async (): Promise<void> => {
      for await (const next of postForLines<ReplayProgress>("admin/replays", request, running.signal)) {
        setLine((before) => ({ ...before, ...next }));
        if (next.done) announce("The replay is done.");
      }
    };
    follow().catch(({ message }: Error) => {
      if (!running.signal.aborted) setLine((before) => ({ ...before, error: message }));
    });
    return () => running.abort();
  }, [request]);
  const { moved = 0, finishedBefore, refusal, done, error } = line;
  const hasEnded = done === true || error !== undefined;
  return (
    <Section title="Progress">
      <progress max={Math.max(total, moved, 1)} value={done ? Math.max(total, 1) : moved} aria-label="Rows moved" />
      <p role="status">
        {count(moved)} of {count(total)} moved{done ? ": the replay is done." : ""}
      </p>
      {refusal === undefined ? null : <p class="reason">Others are unchanged: {refusal}</p>}
      <ErrorNote>{error}</ErrorNote>
      <div class="actions">
        {error === undefined || finishedBefore === undefined ? null : (
          <button
            type="button"
            onClick={() => onNext({ request: { ...request, finishedBefore }, total: Math.max(0, total - moved) })}
          >
            Replay the rest
          </button>
        )}
        {hasEnded ? (
          <button type="button" onClick={() => onNext(undefined)}>
            Close
          </button>
        ) : (
          <button
            type="button"
            class="danger"
            onClick={() => {
              running.abort();
              setLine((before) => ({ ...before, error: "Cancelled: what has moved stays moved." }));
            }}
          >
            Cancel
          </button>
        )}
      </div>
    </Section>
  );
}
