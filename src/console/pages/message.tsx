import { useState } from "preact/hooks";
import { duration, indentJson, plural } from "../format.ts";
import { useLive } from "../live.tsx";
import { useResource } from "../resource.ts";
import { link } from "../router.ts";
import type { Message, TimelineEvent } from "../types.ts";
import {
  Badge,
  type Column,
  Dialog,
  Facts,
  LAST_ERROR,
  Loaded,
  MessageLink,
  PageTitle,
  Section,
  Table,
  TextField,
  Time,
  useChange,
} from "../ui.tsx";
import { ToDestination } from "./replays.tsx";

/** What happened to one message, why it waits, and what to do about it. */
export function MessageTimelinePage({ id }: { readonly id: string }) {
  const { beat } = useLive();
  const resource = useResource<Message>(`admin/messages/${encodeURIComponent(id)}`, beat);
  return (
    <>
      <PageTitle>Message</PageTitle>
      <p class="mono">{id}</p>
      <Loaded resource={resource}>{(message) => <MessageBody message={message} onChanged={resource.reload} />}</Loaded>
    </>
  );
}

function MessageBody({ message, onChanged }: { readonly message: Message; readonly onChanged: () => void }) {
  const { id, state, waits, events, attempts, maxAttempts, summary, deliveries, payload, headers } = message;
  return (
    <>
      <Actions message={message} onChanged={onChanged} />
      {waits.length === 0 ? null : (
        <Section title="Why it waits">
          <ul>
            {waits.map(({ code, text }) => (
              <li key={code + text}>
                <Badge>{code}</Badge> {text}
              </li>
            ))}
          </ul>
        </Section>
      )}
      <Section title="Now">
        <Facts
          entries={[
            ["State", <Badge key="state">{state}</Badge>],
            ["Failed attempts", `${attempts}${maxAttempts === null ? "" : ` of ${maxAttempts}`}`],
            ["Cell", message.cell],
            ["Topic", message.topic],
            [
              "Key",
              message.key === null ? null : (
                <a key="key" href={link(["messages"], { key: message.key })}>
                  {message.key}
                </a>
              ),
            ],
            [
              "Destination",
              message.destination === null ? null : (
                <a key="destination" href={link(["destinations", message.destination])}>
                  {message.destination}
                </a>
              ),
            ],
            [
              "Delivery of",
              message.messageId === null ? null : <MessageLink key="message" id={message.messageId} isShort={false} />,
            ],
            ["Source", message.source],
            ["Idempotency key", message.idempotencyKey],
            ["Correlation id", message.correlationId],
            [
              "Trace",
              message.traceUrl === null ? (
                message.traceId
              ) : (
                <a key="trace" href={message.traceUrl} target="_blank" rel="noreferrer">
                  {message.traceId}
                </a>
              ),
            ],
            ["Received again", message.duplicates ? plural(message.duplicates, "time") : null],
            ["Last error", message.lastError],
          ]}
        />
      </Section>
      {summary === null ? null : (
        <Section title="Deliveries">
          <p>{summary}</p>
          <Table
            caption="Deliveries, in the order of the list"
            rows={deliveries}
            empty="None is left."
            columns={DELIVERIES}
          />
        </Section>
      )}
      <Section title="Timeline">
        <ol class="timeline">
          {events.map((event, n) => (
            // Events have no id, and their order is fixed.
            <Event key={n} event={event} />
          ))}
        </ol>
      </Section>
      {payload === undefined ? (
        <p class="quiet">Payload and headers are shown only with admin.showPayloads.</p>
      ) : (
        <>
          <Section title="Payload">
            <pre>{payload === null ? "Not shown: fields are hidden, and it is not JSON." : indentJson(payload)}</pre>
            {payload === null ? null : <a href={link(["playground"], { message: id })}>Try a transform on it</a>}
          </Section>
          <Section title="Headers">
            <Facts entries={Object.entries(headers ?? {})} />
            {Object.keys(headers ?? {}).length === 0 ? <p class="quiet">It has none.</p> : null}
          </Section>
        </>
      )}
    </>
  );
}

const DELIVERIES: readonly Column<Message["deliveries"][number]>[] = [
  { title: "Destination", cell: ({ destination }) => destination },
  { title: "State", cell: ({ state }) => <Badge>{state}</Badge> },
  { title: "Failed", cell: ({ attempt }) => attempt, is: "number" },
  { title: "Since", cell: ({ updatedAt }) => <Time at={updatedAt} /> },
  { title: "Delivery", cell: ({ id }) => <MessageLink id={id} /> },
  LAST_ERROR,
];

const TONES: Readonly<Record<string, string>> = {
  ...{ sent: "good", dead: "bad", discarded: "bad", "died in the inbox": "bad" },
  ...{ retry: "warn", park: "warn", skipped: "warn", expanded: "info", replayed: "info", retried: "info" },
};

function Event({ event }: { readonly event: TimelineEvent }) {
  const { at, text, attempt, actor, destination, code, status, durationMs, reason } = event;
  const details = [
    attempt === undefined ? undefined : `attempt ${attempt}`,
    destination === undefined ? undefined : `to ${destination}`,
    actor === undefined ? undefined : `by ${actor}`,
    durationMs === undefined ? undefined : duration(durationMs),
    code,
    status,
  ].filter((each) => each !== undefined);
  return (
    <li class={TONES[event.event] ?? "plain"}>
      <Time at={at} /> <strong>{text}</strong>
      {details.length === 0 ? null : <div class="quiet">{details.join(" · ")}</div>}
      {reason === undefined ? null : <div class="reason">{reason}</div>}
    </li>
  );
}

type Action = "retry" | "discard" | "replay";

/** Which actions the state of a message allows; the service decides. */
function actionsOf({ state, topic }: Message): readonly Action[] {
  // The row is in the inbox alone.
  if (topic === null) return state === "dead" ? ["replay"] : [];
  if (state === "parked" || state === "pending") return ["retry", "discard"];
  return state === "sent" || state === "dead" ? ["replay"] : [];
}

const NAMES: Readonly<Record<Action, string>> = { retry: "Retry now", discard: "Discard", replay: "Replay" };
const DONE: Readonly<Record<Action, string>> = {
  retry: "The message is due now.",
  discard: "The message is discarded.",
  replay: "The message is delivered again.",
};

function effectOf(action: Action, { topic, expandedTo }: Message): string {
  if (action === "retry") return "It is delivered at once, with all its attempts. Later rows of its key follow.";
  if (action === "discard") return "It becomes dead and is not delivered. The next rows of its key are.";
  if (topic === null) return "It passes the filter, attributes and transform of its source again, under the same id.";
  const what = expandedTo === null ? "It is" : "Its finished deliveries are";
  return `${what} delivered again under the same id, before later rows of its key.`;
}

function Actions({ message, onChanged }: { readonly message: Message; readonly onChanged: () => void }) {
  const [asked, setAsked] = useState<Action | undefined>();
  const [reason, setReason] = useState("");
  const [to, setTo] = useState("");
  const change = useChange();
  const actions = actionsOf(message);
  if (actions.length === 0) return null;
  const run = async (action: Action): Promise<void> => {
    const more = action === "discard" ? { reason } : action === "replay" ? { toDestination: to || null } : {};
    await change(`admin/messages/${message.id}/${action}`, more, DONE[action]);
    onChanged();
  };
  return (
    <div class="actions">
      {actions.map((action) => (
        <button
          key={action}
          type="button"
          class={action === "discard" ? "danger" : "primary"}
          onClick={() => setAsked(action)}
        >
          {NAMES[action]}
        </button>
      ))}
      {asked && (
        <Dialog
          title={`${NAMES[asked]}: this message?`}
          action={NAMES[asked]}
          isDanger={asked === "discard"}
          onConfirm={() => run(asked)}
          onClose={() => setAsked(undefined)}
        >
          <p>{effectOf(asked, message)}</p>
          {asked === "discard" ? (
            <TextField label="Reason" value={reason} onValue={setReason} isRequired hint="Kept with the message." />
          ) : null}
          {asked === "replay" && message.topic !== null ? <ToDestination value={to} onValue={setTo} /> : null}
        </Dialog>
      )}
    </div>
  );
}
