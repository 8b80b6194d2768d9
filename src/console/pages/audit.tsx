import { useState } from "preact/hooks";
import { withQuery } from "../api.ts";
import { UNKNOWN } from "../format.ts";
import { useLive } from "../live.tsx";
import { useResource } from "../resource.ts";
import type { AuditEntry } from "../types.ts";
import { Loading, MessageLink, PageTitle, Table, Time } from "../ui.tsx";

/** Who did what, newest first. */
export function AuditPage() {
  const [cursors, setCursors] = useState<readonly string[]>([]);
  const cursor = cursors.at(-1);
  const { beat } = useLive();
  const path = withQuery("admin/audit", { limit: 50, cursor });
  const resource = useResource<{ entries: readonly AuditEntry[]; cursor: string | null }>(
    path,
    cursor === undefined ? beat : 0,
  );
  const { data } = resource;
  return (
    <>
      <PageTitle>Audit log</PageTitle>
      <p class="quiet">What operators changed, by the console, the admin routes and the commands. Kept for 90 days.</p>
      <Loading resource={resource} />
      {data === undefined ? null : (
        <>
          <Table
            caption="Actions of operators, newest first"
            rows={data.entries}
            keyOf={({ id }) => id}
            empty="No action is logged."
            columns={[
              { title: "Time", cell: ({ at }) => <Time at={at} /> },
              { title: "Who", cell: ({ actor }) => actor, isWide: true },
              { title: "Action", cell: ({ action }) => action },
              { title: "What", cell: ({ target }) => <Target target={target} />, isWide: true },
              { title: "Details", cell: ({ detail }) => detail || UNKNOWN, isWide: true },
            ]}
          />
          <nav class="actions" aria-label="Pages">
            <button type="button" disabled={cursors.length === 0} onClick={() => setCursors(cursors.slice(0, -1))}>
              Newer
            </button>
            <button
              type="button"
              disabled={data.cursor === null}
              onClick={() => data.cursor !== null && setCursors([...cursors, data.cursor])}
            >
              Older
            </button>
            <span class="quiet">Page {cursors.length + 1}</span>
          </nav>
        </>
      )}
    </>
  );
}

const UUID = /^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$/i;

function Target({ target }: { readonly target: string | null }) {
  if (target === null) return <span>{UNKNOWN}</span>;
  return UUID.test(target) ? <MessageLink id={target} /> : <span>{target}</span>;
}
