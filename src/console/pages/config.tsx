import { useState } from "preact/hooks";
import { plural } from "../format.ts";
import { useResource } from "../resource.ts";
import { Loading, PageTitle, TextField } from "../ui.tsx";

/** The configuration of the process that serves the page, with the origin of each value. */
export function ConfigPage() {
  const resource = useResource<{ text: string }>("admin/config");
  const [search, setSearch] = useState("");
  const lines = resource.data?.text.trimEnd().split("\n") ?? [];
  const shown = lines.filter((line) => line.toLowerCase().includes(search.toLowerCase()));
  return (
    <>
      <PageTitle>Configuration</PageTitle>
      <p class="quiet">
        In effect in the process that serves this page, as svc config print shows it. Secrets are masked.
      </p>
      <Loading resource={resource} />
      {resource.data === undefined ? null : (
        <>
          <div class="filters">
            <TextField label="Only lines with" type="search" value={search} onValue={setSearch} placeholder="SVC_" />
          </div>
          <p class="unseen" role="status">
            {search === "" ? "" : plural(shown.length, "line")}
          </p>
          <pre class="config">
            {shown.map((line, n) => {
              const at = line.lastIndexOf("  # ");
              // Lines have no other identity.
              return (
                <ConfigLine key={n} text={at < 0 ? line : line.slice(0, at)} origin={at < 0 ? "" : line.slice(at)} />
              );
            })}
          </pre>
        </>
      )}
    </>
  );
}

function ConfigLine({ text, origin }: { readonly text: string; readonly origin: string }) {
  return (
    <>
      {text}
      <span class="quiet">{origin}</span>
      {"\n"}
    </>
  );
}
