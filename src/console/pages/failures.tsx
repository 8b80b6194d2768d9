import { useState } from "preact/hooks";
import { withQuery } from "../api.ts";
import { count, plural } from "../format.ts";
import { useLive, useNames } from "../live.tsx";
import { useResource } from "../resource.ts";
import { go, link, type Place } from "../router.ts";
import type { FailureGroup, Failures } from "../types.ts";
import { Badge, Choice, Dialog, Loaded, MessageLink, PageTitle, TextField, Time, useChange } from "../ui.tsx";
import { NO_DESTINATION } from "./replays.tsx";

const VERBS = { retry: "Retry", discard: "Discard" } as const;
type Change = keyof typeof VERBS;

interface Asked {
  readonly change: Change;
  /** Undefined: every parked row. */
  readonly rows?: { readonly which: object; readonly text: string };
}

/** Dead and parked rows, grouped by reason. */
export function FailuresPage({ place }: { readonly place: Place }) {
  const { beat } = useLive();
  const filter = { state: place.query.get("state") ?? "", destination: place.query.get("destination") ?? "" };
  const resource = useResource<Failures>(withQuery("admin/failures", filter), beat);
  const [asked, setAsked] = useState<Asked | undefined>();
  const show = (change: Partial<typeof filter>): void => go(link(["failures"], { ...filter, ...change }));
  const names = useNames("destinations");
  return (
    <>
      <PageTitle>Failures</PageTitle>
      <div class="grid">
        <Choice
          label="State"
          value={filter.state}
          onValue={(state) => show({ state })}
          options={[
            ["", "dead and parked"],
            ["dead", "dead"],
            ["parked", "parked"],
          ]}
        />
        <Choice
          label="Destination"
          value={filter.destination}
          onValue={(destination) => show({ destination })}
          options={[["", "any"], ...names]}
        />
        <div class="actions">
          <button type="button" onClick={() => setAsked({ change: "retry" })}>
            Retry all parked…
          </button>
          <button type="button" class="danger" onClick={() => setAsked({ change: "discard" })}>
            Discard all parked…
          </button>
        </div>
      </div>
      <Loaded resource={resource}>
        {({ groups, rowsRead, isComplete }) => (
          <>
            <p class="quiet">
              {plural(groups.length, "reason")} in {plural(rowsRead, "row")}
              {isComplete ? "." : ": the newest rows only."}
            </p>
            <ul class="groups">
              {groups.map((group) => (
                <Group key={`${group.state} ${group.destination} ${group.reason}`} group={group} onAsk={setAsked} />
              ))}
            </ul>
            {groups.length === 0 ? <p>No row is dead or parked.</p> : null}
          </>
        )}
      </Loaded>
      {asked && <ParkedDialog asked={asked} onDone={resource.reload} onClose={() => setAsked(undefined)} />}
    </>
  );
}

function Group({ group, onAsk }: { readonly group: FailureGroup; readonly onAsk: (asked: Asked) => void }) {
  const { state, destination, reason, newestAt, oldestAt, ids } = group;
  const these = ids.length === 1 ? "this row" : `these ${count(ids.length)} rows`;
  const ofGroup = { state, destination: destination ?? NO_DESTINATION, reason: reason ?? undefined };
  // Without its reason nothing says which rows are the group; a small one is its ids.
  const isLarge = reason !== null && group.count > ids.length;
  const wanted = [
    ...(isLarge ? [[`this group of ${count(group.count)} rows`, { destination, lastError: reason }] as const] : []),
    [these, { ids }] as const,
  ];
  return (
    <li class="card">
      <p>
        <Badge>{state}</Badge> <strong>{plural(group.count, "row")}</strong> to {destination ?? "no destination"}
      </p>
      <p class="reason">{reason ?? "Not shown: admin.redactPayloadPaths hides reasons."}</p>
      <p class="quiet">
        <Time at={oldestAt} /> to <Time at={newestAt} />, such as{" "}
        {ids.map((id, n) => (
          <span key={id}>
            {n === 0 ? null : ", "}
            <MessageLink id={id} />
          </span>
        ))}
      </p>
      <div class="actions">
        {state === "dead" ? (
          <>
            {group.count === ids.length ? null : (
              <a class="button" href={link(["replays"], ofGroup)}>
                Replay {reason === null ? `dead rows to ${destination ?? "no destination"}` : "this group"}…
              </a>
            )}
            <a class="button" href={link(["replays"], { state, ids: ids.join(",") })}>
              Replay {these}…
            </a>
          </>
        ) : (
          (["retry", "discard"] as const).flatMap((change) =>
            wanted.map(([text, which]) => (
              <button
                key={`${change} ${text}`}
                type="button"
                class={change === "discard" ? "danger" : undefined}
                onClick={() => onAsk({ change, rows: { which, text } })}
              >
                {VERBS[change]} {text}…
              </button>
            )),
          )
        )}
      </div>
    </li>
  );
}

interface ParkedDialogProps {
  readonly asked: Asked;
  readonly onDone: () => void;
  readonly onClose: () => void;
}

function ParkedDialog({ asked: { change, rows }, onDone, onClose }: ParkedDialogProps) {
  const [reason, setReason] = useState("");
  const [topic, setTopic] = useState("");
  const make = useChange();
  const run = async (): Promise<void> => {
    const which = rows?.which ?? (topic === "" ? { all: true } : { topic });
    await make<{ changed: number; refusal?: string }>(
      `admin/parked/${change}`,
      { ...which, ...(change === "discard" && { reason }) },
      ({ changed, refusal }) =>
        `${plural(changed, "row")} ${change === "retry" ? "due now" : "discarded"}.${refusal === undefined ? "" : ` Others are unchanged: ${refusal}`}`,
    );
    onDone();
  };
  const verb = VERBS[change];
  return (
    <Dialog
      title={`${verb} ${rows?.text ?? "all parked rows"}?`}
      action={verb}
      isDanger={change === "discard"}
      onConfirm={run}
      onClose={onClose}
    >
      <p>
        {change === "retry"
          ? "They are delivered again with all their attempts; later rows of their keys follow."
          : "They become dead and are not delivered; the next rows of their keys are."}
      </p>
      {rows === undefined ? (
        <TextField
          label="Topic pattern"
          value={topic}
          onValue={setTopic}
          placeholder="orders.**"
          hint="Empty: every topic."
        />
      ) : null}
      {change === "discard" ? (
        <TextField label="Reason" value={reason} onValue={setReason} isRequired hint="Kept with each row." />
      ) : null}
    </Dialog>
  );
}
