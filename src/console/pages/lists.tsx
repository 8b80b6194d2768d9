import { useState } from "preact/hooks";
import { withQuery } from "../api.ts";
import { count, plural } from "../format.ts";
import { useLive } from "../live.tsx";
import { useResource } from "../resource.ts";
import { link } from "../router.ts";
import type { AuditEntry, BlockedKey } from "../types.ts";
import {
  Badge,
  cellColumn,
  LAST_ERROR,
  Loaded,
  MessageLink,
  Pages,
  PageTitle,
  Table,
  TextField,
  Time,
  UUID,
} from "../ui.tsx";

/** The pages that are one list. */

/** Who did what, newest first. */
export function AuditPage() {
  const { beat } = useLive();
  return (
    <>
      <PageTitle about="What operators changed, by the console, the admin routes and the commands. Kept for 90 days.">
        Audit log
      </PageTitle>
      <Pages<{ entries: readonly AuditEntry[]; cursor: string | null }>
        of={(cursor) => withQuery("admin/audit", { limit: 50, cursor })}
        beat={beat}
      >
        {({ entries }) => (
          <Table
            caption="Actions of operators, newest first"
            rows={entries}
            empty="No action is logged."
            columns={[
              { title: "Time", cell: ({ at }) => <Time at={at} /> },
              { title: "Who", is: "wide", cell: ({ actor }) => actor },
              { title: "Action", cell: ({ action }) => action },
              {
                title: "What",
                is: "wide",
                cell: ({ target }) => (UUID.test(target ?? "") ? <MessageLink id={target ?? ""} /> : target),
              },
              { title: "Details", is: "wide", cell: ({ detail }) => detail },
            ]}
          />
        )}
      </Pages>
    </>
  );
}

const SHOWN = 100;
/** Rows behind a key are counted so far. */
const MOST_COUNTED = 1000;

/** Keys whose first unfinished row waits for a retry or a decision, and what waits behind it. */
export function BlockedKeysPage() {
  const { beat } = useLive();
  const resource = useResource<{ keys: readonly BlockedKey[] }>(`admin/blocked-keys?limit=${SHOWN}`, beat);
  return (
    <>
      <PageTitle about="The rows of a key are delivered in order: while its first one waits, those behind it wait too.">
        Blocked keys
      </PageTitle>
      <Loaded resource={resource}>
        {({ keys }) => (
          <>
            <Table
              caption="Blocked keys, with the row that blocks each"
              rows={keys}
              empty="No key is blocked."
              columns={[
                { title: "Key", is: "wide", cell: ({ key }) => <a href={link(["messages"], { key })}>{key}</a> },
                ...cellColumn(keys),
                {
                  ...{ title: "Rows behind", is: "number" },
                  cell: ({ rowsBehind }) => `${count(rowsBehind)}${rowsBehind < MOST_COUNTED ? "" : " or more"}`,
                },
                { title: "Blocked by", cell: ({ id }) => <MessageLink id={id} /> },
                { title: "State", cell: ({ state }) => <Badge>{state}</Badge> },
                { title: "Destination", cell: ({ destination }) => destination },
                { title: "Due", cell: ({ dueAt, state }) => (state === "parked" ? "never" : <Time at={dueAt} />) },
                { title: "Failed", cell: ({ attempt }) => count(attempt), is: "number" },
                LAST_ERROR,
              ]}
            />
            {keys.length < SHOWN ? null : <p class="quiet">The first {SHOWN} keys; there may be more.</p>}
          </>
        )}
      </Loaded>
    </>
  );
}

/** The configuration of the process that serves the page, with the origin of each value. */
export function ConfigPage() {
  const resource = useResource<{ text: string }>("admin/config");
  const [search, setSearch] = useState("");
  const lines = resource.data?.text.trimEnd().split("\n") ?? [];
  const shown = lines.filter((line) => line.toLowerCase().includes(search.toLowerCase()));
  return (
    <>
      <PageTitle about="In effect in the process that serves this page, as svc config print shows it. Secrets are masked.">
        Configuration
      </PageTitle>
      <div class="grid">
        <TextField label="Only lines with" type="search" value={search} onValue={setSearch} placeholder="SVC_" />
      </div>
      <p class="unseen" role="status">
        {search === "" ? "" : plural(shown.length, "line")}
      </p>
      <Loaded resource={resource}>{() => <pre>{shown.join("\n")}</pre>}</Loaded>
    </>
  );
}
