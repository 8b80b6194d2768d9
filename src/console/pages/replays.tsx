import { useState } from "preact/hooks";
import { post } from "../api.ts";
import { count, instantOf, plural } from "../format.ts";
import { useLive, useNames } from "../live.tsx";
import { useResource } from "../resource.ts";
import { go, link, type Place } from "../router.ts";
import type { DryRun, ReplayFilter, ReplayJob } from "../types.ts";
import {
  Badge,
  Choice,
  cellColumn,
  Dialog,
  ErrorNote,
  Loaded,
  MessageLink,
  PageTitle,
  Section,
  Table,
  TextField,
  Time,
  useAttempt,
  useChange,
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
        <Loaded resource={resource}>
          {({ jobs }) => (
            <>
              <ul class="groups">
                {jobs.map((job) => (
                  <Job key={job.id} job={job} onChanged={resource.reload} />
                ))}
              </ul>
              {jobs.length === 0 ? <p class="quiet">No replay was started yet.</p> : null}
            </>
          )}
        </Loaded>
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

/** Where replayed rows go. */
export function ToDestination(field: { readonly value: string; readonly onValue: (value: string) => void }) {
  const options = [["", "where they went before"] as const, ...useNames("destinations")];
  return <Choice label="Deliver to" {...field} options={options} />;
}

interface StartDialogProps {
  readonly found: Found;
  readonly onClose: () => void;
  readonly onStarted: () => void;
}

function StartDialog({ found: { filter, run }, onClose, onStarted }: StartDialogProps) {
  const [perSecond, setPerSecond] = useState("100");
  const [to, setTo] = useState("");
  const change = useChange();
  const start = async (): Promise<void> => {
    const how = { perSecond: perSecond === "" ? null : Number(perSecond), toDestination: to || null };
    await change("admin/replays", { ...filter, ...how }, "The replay has started.");
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
  const { error, attempt } = useAttempt();
  const make = useChange();
  const change = (action: "cancel" | "resume") =>
    attempt(async () => {
      const done = action === "cancel" ? "The replay is cancelled." : "The replay goes on.";
      await make(`admin/replays/${encodeURIComponent(id)}/${action}`, {}, done);
      onChanged();
    });
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
          <button type="button" class="danger" onClick={change("cancel")}>
            Cancel
          </button>
        ) : null}
        {isStill || state === "interrupted" || state === "failed" ? (
          <button type="button" onClick={change("resume")}>
            Resume
          </button>
        ) : null}
      </div>
    </li>
  );
}

/** A live run notes its progress several times a second, but for its waits for the pollers. */
const STILL_MS = 60_000;
