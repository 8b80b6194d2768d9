import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { post } from "../api.ts";
import { count, duration } from "../format.ts";
import { useLive } from "../live.tsx";
import { useResource } from "../resource.ts";
import { link } from "../router.ts";
import { useCaller } from "../session.ts";
import type { Destination } from "../types.ts";
import { Badge, Dialog, Facts, Loading, PageTitle, Section, Table, TextField, Time, useAnnouncer } from "../ui.tsx";
import { DestinationChart, Problems } from "./overview.tsx";

type Asked = Pick<Destination, "name" | "pause">;

/** The destinations, with pause and resume. @param name of one, whose page it is; undefined for the list */
export function DestinationsPage({ name }: { readonly name: string | undefined }) {
  const { beat } = useLive();
  const resource = useResource<{ destinations: readonly Destination[] }>("admin/destinations", beat);
  const [asked, setAsked] = useState<Asked | undefined>();
  const { destinations } = resource.data ?? {};
  const one = destinations?.find((each) => each.name === name);
  const change = (each: Destination) => {
    const verb = each.pause === null ? "Pause" : "Resume";
    return (
      <button type="button" onClick={() => setAsked(each)} aria-label={`${verb} ${each.name}`}>
        {verb}
      </button>
    );
  };
  const Change = asked?.pause === null ? PauseDialog : ResumeDialog;
  return (
    <>
      <PageTitle>{name === undefined ? "Destinations" : "Destination"}</PageTitle>
      <Loading resource={resource} />
      {destinations === undefined ? null : name === undefined ? (
        <Table
          caption="Destinations"
          rows={destinations}
          keyOf={(each) => each.name}
          empty="The configuration has no destination."
          columns={[
            {
              title: "Name",
              cell: (each) => <a href={link(["destinations", each.name])}>{each.name}</a>,
              isWide: true,
            },
            { title: "State", cell: (each) => <State destination={each} />, isWide: true },
            { title: "Waiting", cell: ({ backlog }) => count(backlog), isNumber: true },
            { title: "Oldest", cell: ({ oldestAgeMs }) => duration(oldestAgeMs), isNumber: true },
            { title: "Parked", cell: ({ parked }) => count(parked), isNumber: true },
            { title: "Limit", cell: limitOf, isNumber: true },
            { title: "Last success", cell: ({ lastSuccessAt }) => <Time at={lastSuccessAt} isRelative /> },
            { title: "Last failure", cell: ({ lastFailureAt }) => <Time at={lastFailureAt} isRelative /> },
            { title: "Action", cell: change },
          ]}
        />
      ) : one === undefined ? (
        <p>The configuration has no destination {name}.</p>
      ) : (
        <OneDestination destination={one}>{change(one)}</OneDestination>
      )}
      {asked === undefined ? null : (
        <Change name={asked.name} onDone={resource.reload} onClose={() => setAsked(undefined)} />
      )}
    </>
  );
}

const limitOf = ({ rate }: Destination): string =>
  rate === null ? "none" : `${count(rate.taken)} of ${count(rate.perSecond)}/s`;

function OneDestination({
  destination,
  children,
}: {
  readonly destination: Destination;
  readonly children: ComponentChildren;
}) {
  const { name, recent } = destination;
  const { overview } = useLive();
  const counted = overview?.destinations.find((each) => each.name === name);
  const figures = recent && `${count(recent.sent)} sent, ${count(recent.failed)} failed, ${count(recent.dead)} dead`;
  return (
    <>
      <p class="wrap">{name}</p>
      <Problems of={(overview?.problems ?? []).filter((each) => each.destination === name)} />
      <div class="actions">
        {children}
        <a class="button" href={link(["messages"], { destination: name, state: "pending" })}>
          Waiting messages
        </a>
        <a class="button" href={link(["failures"], { destination: name })}>
          Failures
        </a>
      </div>
      <Section title="Now">
        <Facts
          entries={[
            ["State", <State key="state" destination={destination} />],
            ["Waiting", count(destination.backlog)],
            ["Oldest", duration(destination.oldestAgeMs)],
            ["In flight", count(destination.inFlight)],
            ["Blocked keys", count(destination.blockedKeys)],
            ["Parked", count(destination.parked)],
            ["Last five minutes", figures],
            ["Rate limit", limitOf(destination)],
            ["Last success", <Time key="success" at={destination.lastSuccessAt} />],
            ["Last failure", <Time key="failure" at={destination.lastFailureAt} />],
            ["Last error", destination.lastError],
          ]}
        />
      </Section>
      {counted === undefined || overview === undefined ? null : (
        <Section title="Last hour">
          <DestinationChart destination={counted} at={overview.at} />
        </Section>
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
