import { useState } from "preact/hooks";
import { post } from "../api.ts";
import { count, instantOf, plural, UNKNOWN } from "../format.ts";
import { useLive } from "../live.tsx";
import { useResource } from "../resource.ts";
import { go, link, type Place } from "../router.ts";
import { useCaller } from "../session.ts";
import type { DryRun, ReplayFilter, ReplayJob } from "../types.ts";
import {
  Badge,
  Choice,
  cellColumn,
  Dialog,
  ErrorNote,
  Loading,
  MessageLink,
  PageTitle,
  Section,
  Table,
  TextField,
  Time,
  useAnnouncer,
} from "../ui.tsx";

/** Replays: first a dry run, then a job with progress. */
export function ReplaysPage({ place }: { readonly place: Place }) {
  const { beat } = useLive();
  const resource = useResource<{ jobs: readonly ReplayJob[] }>("admin/replays", beat);
  return (
    <>
      <PageTitle>Replays</PageTitle>
      <Section title="New replay">
        <NewReplay key={place.query.toString()} query={place.query} onStarted={resource.reload} />
      </Section>
      <Section title="Jobs">
        <Loading resource={resource} />
        {resource.data === undefined ? null : (
          <>
            <ul class="groups">
              {resource.data.jobs.map((job) => (
                <Job key={job.id} job={job} onChanged={resource.reload} />
              ))}
            </ul>
            {resource.data.jobs.length === 0 ? <p class="quiet">No replay was started yet.</p> : null}
          </>
        )}
      </Section>
    </>
  );
}

interface Found {
  readonly filter: ReplayFilter;
  readonly run: DryRun;
}

function NewReplay({ query, onStarted }: { readonly query: URLSearchParams; readonly onStarted: () => void }) {
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
  const [error, setError] = useState<string | undefined>();
  const [isBusy, setBusy] = useState(false);
  const [isAsking, setAsking] = useState(false);
  const { overview } = useLive();
  const set = (name: keyof typeof fields) => (value: string) => {
    setFields((before) => ({ ...before, [name]: value }));
    // A dry run counts for the filter that it was made with.
    setFound(undefined);
  };
  const dryRun = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    const filter = filterOf(fields);
    try {
      setFound({ filter, run: await post<DryRun>("admin/replays", { ...filter, dryRun: true }) });
    } catch (failure) {
      setFound(undefined);
      setError((failure as Error).message);
    }
    setBusy(false);
  };
  const names = (overview?.destinations ?? []).map(({ name }) => [name, name] as const);
  return (
    <>
      <form class="filters wide" onSubmit={(event) => void dryRun(event)}>
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
          <button type="button" disabled={found === undefined || found.run.count === 0} onClick={() => setAsking(true)}>
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
          onStarted={() => {
            go(link(["replays"]));
            setFound(undefined);
            onStarted();
          }}
        />
      )}
    </>
  );
}

/** In an address and a choice; no destination has this name. */
export const NO_DESTINATION = "\0";

function filterOf(fields: Readonly<Record<string, string>>): ReplayFilter {
  const { state = "", destination = "", reason = "", topic = "", ids = "" } = fields;
  const { createdAfter = "", createdBefore = "" } = fields;
  const named = ids.split(/[\s,]+/).filter((id) => id !== "");
  const [after, before] = [instantOf(createdAfter), instantOf(createdBefore)];
  return {
    ...(state === "" ? {} : { state }),
    ...(destination === "" ? {} : { destination: destination === NO_DESTINATION ? null : destination }),
    ...(reason === "" ? {} : { reason }),
    ...(topic === "" ? {} : { topic }),
    ...(named.length === 0 ? {} : { ids: named }),
    ...(after === undefined ? {} : { createdAfter: after }),
    ...(before === undefined ? {} : { createdBefore: before }),
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
        keyOf={(group) => JSON.stringify(group)}
        empty=""
        columns={[
          { title: "Rows", cell: (group) => count(group.count), isNumber: true },
          { title: "Destination", cell: ({ destination }) => destination ?? "none" },
          { title: "Topic", cell: ({ topic }) => topic ?? UNKNOWN, isWide: true },
          { title: "Reason", cell: ({ reason }) => reason ?? UNKNOWN, isWide: true },
        ]}
      />
      {run.count === 0 ? null : <p>Such as:</p>}
      <Table
        caption="Sample of the rows"
        rows={run.sample}
        keyOf={({ id }) => id ?? ""}
        empty=""
        columns={[
          { title: "Created", cell: ({ createdAt }) => <Time at={createdAt} /> },
          { title: "Message", cell: ({ id = "" }) => <MessageLink id={id} /> },
          ...cellColumn(run.sample),
          { title: "Topic", cell: ({ topic }) => topic ?? UNKNOWN, isWide: true },
          { title: "Key", cell: ({ key }) => key ?? UNKNOWN, isWide: true },
          { title: "State", cell: ({ state = "" }) => <Badge>{state}</Badge> },
        ]}
      />
    </>
  );
}

/** Where replayed rows go. */
export function ToDestination(field: { readonly value: string; readonly onValue: (value: string) => void }) {
  const { overview } = useLive();
  const names = (overview?.destinations ?? []).map(({ name }) => [name, name] as const);
  return <Choice label="Deliver to" {...field} options={[["", "where they went before"], ...names]} />;
}

interface StartDialogProps {
  readonly found: Found;
  readonly onClose: () => void;
  readonly onStarted: () => void;
}

function StartDialog({ found: { filter, run }, onClose, onStarted }: StartDialogProps) {
  const [perSecond, setPerSecond] = useState("100");
  const [to, setTo] = useState("");
  const caller = useCaller();
  const { announce } = useAnnouncer();
  const start = async (): Promise<void> => {
    const cap = perSecond === "" ? {} : { perSecond: Number(perSecond) };
    await post("admin/replays", { ...filter, ...cap, ...(to === "" ? {} : { toDestination: to }), ...caller });
    announce("The replay has started.");
    onStarted();
  };
  return (
    <Dialog
      title={`Replay ${run.isExact ? "" : "at least "}${plural(run.count, "row")}?`}
      action="Start replay"
      onConfirm={start}
      onClose={onClose}
    >
      <p>
        They are delivered again under the same ids, in order per key. You can cancel the job; what has moved stays
        moved.
      </p>
      <ToDestination value={to} onValue={setTo} />
      <TextField
        label="Rows a second"
        type="number"
        value={perSecond}
        onValue={setPerSecond}
        hint="1 to 100000. Empty: no cap."
      />
    </Dialog>
  );
}

function Job({ job, onChanged }: { readonly job: ReplayJob; readonly onChanged: () => void }) {
  const { id, state, by, createdAt, updatedAt, filter, perSecond, total, moved, lastError } = job;
  const [error, setError] = useState<string | undefined>();
  const { announce } = useAnnouncer();
  const caller = useCaller();
  const change = async (action: "cancel" | "resume"): Promise<void> => {
    try {
      await post(`admin/replays/${encodeURIComponent(id)}/${action}`, caller);
      setError(undefined);
      announce(action === "cancel" ? "The replay is cancelled." : "The replay goes on.");
      onChanged();
    } catch (failure) {
      setError((failure as Error).message);
    }
  };
  const what = Object.entries(filter)
    .filter(([name, value]) => (value !== null || name === "destination") && value !== undefined)
    .map(
      ([name, value]) =>
        `${name} ${value === null ? "none" : Array.isArray(value) ? plural(value.length, "id") : String(value)}`,
    );
  const isStill = state === "running" && Date.now() - Date.parse(updatedAt ?? "") > STILL_MS;
  return (
    <li class="card">
      <p>
        <Badge>{state}</Badge> <strong>{what.join(", ") || "every row"}</strong>
        {perSecond === null ? null : `, ${count(perSecond)}/s`}
      </p>
      <progress
        max={Math.max(total ?? moved, 1)}
        value={total === null && state === "running" ? undefined : state === "done" && total === 0 ? 1 : moved}
        aria-label={`Rows moved by the replay of ${by}`}
      />
      <p class="quiet">
        {count(moved)} of {count(total)} moved, by {by}, started <Time at={createdAt} />, last progress{" "}
        <Time at={updatedAt} />
      </p>
      {isStill ? <p class="reason">No progress for a minute: if its process is gone, resume it.</p> : null}
      {lastError === null ? null : <p class="reason">{lastError}</p>}
      <ErrorNote>{error}</ErrorNote>
      <div class="actions">
        {state === "running" || state === "interrupted" ? (
          <button type="button" class="danger" onClick={() => void change("cancel")}>
            Cancel
          </button>
        ) : null}
        {isStill || state === "interrupted" || state === "failed" ? (
          <button type="button" onClick={() => void change("resume")}>
            Resume
          </button>
        ) : null}
      </div>
    </li>
  );
}

/** A live run notes its progress several times a second, but for its waits for the pollers. */
const STILL_MS = 60_000;
