import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { count, duration } from "../format.ts";
import { useLive } from "../live.tsx";
import { useResource } from "../resource.ts";
import { link } from "../router.ts";
import type { Destination } from "../types.ts";
import { Badge, Dialog, Facts, Loaded, PageTitle, Section, Table, TextField, Time, useChange } from "../ui.tsx";
import { DestinationChart, Problems } from "./overview.tsx";

/** The destinations, with pause and resume. @param name of one, whose page it is; undefined for the list */
export function DestinationsPage({ name }: { readonly name: string | undefined }) {
  const { beat } = useLive();
  const resource = useResource<{ destinations: readonly Destination[] }>("admin/destinations", beat);
  const [asked, setAsked] = useState<Destination | undefined>();
  const change = (each: Destination) => {
    const verb = each.pause === null ? "Pause" : "Resume";
    return (
      <button type="button" onClick={() => setAsked(each)} aria-label={`${verb} ${each.name}`}>
        {verb}
      </button>
    );
  };
  const one = resource.data?.destinations.find((each) => each.name === name);
  return (
    <>
      <PageTitle>{name === undefined ? "Destinations" : "Destination"}</PageTitle>
      <Loaded resource={resource}>
        {({ destinations }) =>
          name === undefined ? (
            <Table
              caption="Destinations"
              rows={destinations}
              empty="The configuration has no destination."
              columns={[
                {
                  title: "Name",
                  is: "wide",
                  cell: (each) => <a href={link(["destinations", each.name])}>{each.name}</a>,
                },
                { title: "State", is: "wide", cell: (each) => <State destination={each} /> },
                { title: "Waiting", cell: ({ backlog }) => count(backlog), is: "number" },
                { title: "Oldest", cell: ({ oldestAgeMs }) => duration(oldestAgeMs), is: "number" },
                { title: "Parked", cell: ({ parked }) => count(parked), is: "number" },
                { title: "Limit", cell: limitOf, is: "number" },
                { title: "Last success", cell: ({ lastSuccessAt }) => <Time at={lastSuccessAt} isRelative /> },
                { title: "Last failure", cell: ({ lastFailureAt }) => <Time at={lastFailureAt} isRelative /> },
                { title: "Action", cell: change },
              ]}
            />
          ) : one === undefined ? (
            <p>The configuration has no destination {name}.</p>
          ) : (
            <OneDestination destination={one}>{change(one)}</OneDestination>
          )
        }
      </Loaded>
      {asked && <PauseDialog of={asked} onDone={resource.reload} onClose={() => setAsked(undefined)} />}
    </>
  );
}

const limitOf = ({ rate }: Destination): string =>
  rate === null ? "none" : `${count(rate.taken)} of ${count(rate.perSecond)}/s`;

interface OneProps {
  readonly destination: Destination;
  readonly children: ComponentChildren;
}

function OneDestination({ destination, children }: OneProps) {
  const { name, recent } = destination;
  const { overview } = useLive();
  const counted = overview?.destinations.find((each) => each.name === name);
  const figures = recent && `${count(recent.sent)} sent, ${count(recent.failed)} failed, ${count(recent.dead)} dead`;
  return (
    <>
      <p>{name}</p>
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
      {counted && overview && (
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
      {pause && (
        <div class="quiet">
          by {pause.by}: {pause.reason}
          {pause.until && ` until ${pause.until}`}
        </div>
      )}
      {breaker && (
        <div class="quiet">
          {breaker.reason ?? "failures"}; next probe in {duration(breaker.nextProbeMs)}
        </div>
      )}
    </>
  );
}

interface PauseProps {
  readonly of: Destination;
  readonly onDone: () => void;
  readonly onClose: () => void;
}

/** Pauses a destination, or resumes a paused one. */
function PauseDialog({ of: { name, pause }, onDone, onClose }: PauseProps) {
  const [reason, setReason] = useState("");
  const [time, setTime] = useState("");
  const change = useChange();
  const address = `admin/destinations/${encodeURIComponent(name)}`;
  const verb = pause === null ? "Pause" : "Resume";
  const confirm = async (): Promise<void> => {
    if (pause !== null) await change(`${address}/resume`, {}, `${name} is resumed.`);
    else await change(`${address}/pause`, { reason, for: time || null }, `${name} is paused.`);
    onDone();
  };
  return (
    <Dialog title={`${verb} ${name}?`} action={verb} onConfirm={confirm} onClose={onClose}>
      {pause !== null ? (
        <p>The rows that wait for it are delivered, in order per key.</p>
      ) : (
        <>
          <p>No replica delivers to it; its rows wait.</p>
          <TextField label="Reason" value={reason} onValue={setReason} isRequired hint="Everybody sees it." />
          <TextField
            label="For"
            value={time}
            onValue={setTime}
            placeholder="2h"
            hint="30s, 15m, 2h or 1d. Empty: until you resume it."
          />
        </>
      )}
    </Dialog>
  );
}
