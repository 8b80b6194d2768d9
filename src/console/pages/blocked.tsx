import { count, UNKNOWN } from "../format.ts";
import { useLive } from "../live.tsx";
import { useResource } from "../resource.ts";
import { link } from "../router.ts";
import type { BlockedKey } from "../types.ts";
import { Badge, cellColumn, Loading, MessageLink, PageTitle, Table, Time } from "../ui.tsx";

const SHOWN = 100;
/** Rows behind a key are counted so far. */
const MOST_COUNTED = 1000;

/** Keys whose first unfinished row waits for a retry or a decision, and what waits behind it. */
export function BlockedKeysPage() {
  const { beat } = useLive();
  const resource = useResource<{ keys: readonly BlockedKey[] }>(`admin/blocked-keys?limit=${SHOWN}`, beat);
  const { data } = resource;
  return (
    <>
      <PageTitle>Blocked keys</PageTitle>
      <p class="quiet">
        The rows of a key are delivered in order: while its first one waits, those behind it wait too.
      </p>
      <Loading resource={resource} />
      {data === undefined ? null : (
        <>
          <Table
            caption="Blocked keys, with the row that blocks each"
            rows={data.keys}
            keyOf={({ id }) => id}
            empty="No key is blocked."
            columns={[
              { title: "Key", cell: ({ key }) => <a href={link(["messages"], { key })}>{key}</a>, isWide: true },
              ...cellColumn(data.keys),
              {
                title: "Rows behind",
                cell: ({ rowsBehind }) =>
                  rowsBehind < MOST_COUNTED ? count(rowsBehind) : `${count(MOST_COUNTED)} or more`,
                isNumber: true,
              },
              { title: "Blocked by", cell: ({ id }) => <MessageLink id={id} /> },
              { title: "State", cell: ({ state }) => <Badge>{state}</Badge> },
              { title: "Destination", cell: ({ destination }) => destination ?? UNKNOWN },
              { title: "Due", cell: ({ dueAt, state }) => (state === "parked" ? "never" : <Time at={dueAt} />) },
              { title: "Failed", cell: ({ attempt }) => count(attempt), isNumber: true },
              {
                title: "Last error",
                cell: ({ lastError }) => <span class="reason">{lastError ?? UNKNOWN}</span>,
                isWide: true,
              },
            ]}
          />
          {data.keys.length < SHOWN ? null : <p class="quiet">The first {count(SHOWN)} keys; there may be more.</p>}
        </>
      )}
    </>
  );
}
