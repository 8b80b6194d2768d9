import { useState } from "preact/hooks";
import { post } from "../api.ts";
import { count, duration, UNKNOWN } from "../format.ts";
import { useLive } from "../live.tsx";
import { useResource } from "../resource.ts";
import { link } from "../router.ts";
import { useCaller } from "../session.ts";
import type { Destination } from "../types.ts";
import { Badge, Dialog, Loading, PageTitle, Table, TextField, Time, useAnnouncer } from "../ui.tsx";

/** The destinations, with pause and resume. */
export function DestinationsPage() {
  const { beat } = useLive();
  const resource = useResource<{ destinations: readonly Destination[] }>("admin/destinations", beat);
  const [paused, setPaused] = useState<string | undefined>();
  const [resumed, setResumed] = useState<string | undefined>();
  return (
    <>
      <PageTitle>Destinations</PageTitle>
      <Loading resource={resource} />
      {resource.data === undefined ? null : (
        <Table
          caption="Destinations"
          rows={resource.data.destinations}
          keyOf={({ name }) => name}
          empty="The configuration has no destination."
          columns={[
            { title: "Name", cell: ({ name }) => <a href={link(["messages"], { destination: name })}>{name}</a> },
            { title: "State", cell: (each) => <State destination={each} />, isWide: true },
            { title: "Waiting", cell: ({ backlog }) => count(backlog), isNumber: true },
            { title: "Oldest", cell: ({ oldestAgeMs }) => duration(oldestAgeMs), isNumber: true },
            { title: "In flight", cell: ({ inFlight }) => count(inFlight), isNumber: true },
            {
              title: "Limit",
              cell: ({ rate }) => (rate === null ? "none" : `${count(rate.taken)} of ${count(rate.perSecond)}/s`),
              isNumber: true,
            },
            { title: "Last success", cell: ({ lastSuccessAt }) => <Time at={lastSuccessAt} /> },
            { title: "Last failure", cell: (each) => <LastFailure destination={each} />, isWide: true },
            {
              title: "Action",
              cell: ({ name, pause }) =>
                pause === null ? (
                  <button type="button" onClick={() => setPaused(name)} aria-label={`Pause ${name}`}>
                    Pause
                  </button>
                ) : (
                  <button type="button" onClick={() => setResumed(name)} aria-label={`Resume ${name}`}>
                    Resume
                  </button>
                ),
            },
          ]}
        />
      )}
      {paused === undefined ? null : (
        <PauseDialog name={paused} onDone={resource.reload} onClose={() => setPaused(undefined)} />
      )}
      {resumed === undefined ? null : (
        <ResumeDialog name={resumed} onDone={resource.reload} onClose={() => setResumed(undefined)} />
      )}
    </>
  );
}

function State({ destination: { state, pause, breaker } }: { readonly destination: Destination }) {
  return (
    <>
      <Badge>{state}</Badge>
      {pause === null ? null : (
        <div class="quiet">
          by {pause.by}: {pause.reason}
          {pause.until === null ? null : (
            <>
              {" "}
              until <Time at={pause.until} />
            </>
          )}
        </div>
      )}
      {breaker === null ? null : (
        <div class="quiet">
          {breaker.reason ?? "failures"}; next probe in {duration(breaker.nextProbeMs)}
        </div>
      )}
    </>
  );
}

function LastFailure({ destination: { lastFailureAt, lastError } }: { readonly destination: Destination }) {
  if (lastFailureAt === null && lastError === null) return <span>{UNKNOWN}</span>;
  return (
    <>
      <Time at={lastFailureAt} />
      {lastError === null ? null : <div class="quiet reason">{lastError}</div>}
    </>
  );
}

interface ChangeProps {
  readonly name: string;
  readonly onDone: () => void;
  readonly onClose: () => void;
}

function PauseDialog({ name, onDone, onClose }: ChangeProps) {
  const [reason, setReason] = useState("");
  const [duration, setDuration] = useState("");
  const caller = useCaller();
  const { announce } = useAnnouncer();
  const pause = async (): Promise<void> => {
    const body = { reason, ...(duration === "" ? {} : { for: duration }), ...caller };
    await post(`admin/destinations/${encodeURIComponent(name)}/pause`, body);
    announce(`${name} is paused.`);
    onDone();
  };
  return (
    <Dialog title={`Pause ${name}?`} action="Pause" onConfirm={pause} onClose={onClose}>
      <p>No replica delivers to it; its rows wait.</p>
      <TextField label="Reason" value={reason} onValue={setReason} isRequired hint="Everybody sees it." />
      <TextField
        label="For"
        value={duration}
        onValue={setDuration}
        placeholder="2h"
        hint="30s, 15m, 2h or 1d. Empty: until somebody resumes it."
      />
    </Dialog>
  );
}

function ResumeDialog({ name, onDone, onClose }: ChangeProps) {
  const caller = useCaller();
  const { announce } = useAnnouncer();
  const resume = async (): Promise<void> => {
    await post(`admin/destinations/${encodeURIComponent(name)}/resume`, caller);
    announce(`${name} is resumed.`);
    onDone();
  };
  return (
    <Dialog title={`Resume ${name}?`} action="Resume" onConfirm={resume} onClose={onClose}>
      <p>The rows that wait for it are delivered, in order per key.</p>
    </Dialog>
  );
}
