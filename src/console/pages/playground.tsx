import { useEffect, useState } from "preact/hooks";
import { get, post } from "../api.ts";
import { indentJson } from "../format.ts";
import type { Place } from "../router.ts";
import type { Message } from "../types.ts";
import { Area, ErrorNote, PageTitle, Section, TextField, useAttempt } from "../ui.tsx";

const SAMPLE = '{\n  "id": 7,\n  "lines": [{ "price": 2 }, { "price": 3 }]\n}';

/** What a transform makes of a payload; nothing is sent or written. */
export function PlaygroundPage({ place }: { readonly place: Place }) {
  const messageId = place.query.get("message") ?? "";
  const [id, setId] = useState(messageId);
  const [expression, setExpression] = useState('{"id": id, "total": $sum(lines.price)}');
  const [payload, setPayload] = useState(SAMPLE);
  const [topic, setTopic] = useState("");
  const [source, setSource] = useState("");
  const [result, setResult] = useState<string | undefined>();
  const { error, attempt } = useAttempt();
  const load = (wanted: string) =>
    attempt(async () => {
      setResult(undefined);
      const message = await get<Message>(`admin/messages/${encodeURIComponent(wanted.trim())}`);
      if (message.payload === undefined) throw new Error("Payloads are not shown: set admin.showPayloads to true.");
      if (message.payload === null) throw new Error("The payload of this message is hidden.");
      setPayload(indentJson(message.payload));
      setTopic(message.topic ?? "");
      setSource(message.source ?? "");
    });
  // Loads once for each message of the address.
  useEffect(() => {
    if (messageId !== "") load(messageId)();
  }, [messageId]);
  const run = attempt(async () => {
    setResult(undefined);
    try {
      JSON.parse(payload);
    } catch {
      throw new Error("The payload is not JSON: correct it, then run again.");
    }
    // The payload goes unparsed: parsing would change long numbers.
    const head = JSON.stringify({ expression, mockTopic: topic || null, mockSource: source || null }).slice(0, -1);
    const answer = await post<{ result: unknown }>("admin/transform/test", `${head},"payload":${payload}}`);
    setResult(JSON.stringify(answer.result, null, 2) ?? "nothing");
  });
  return (
    <>
      <PageTitle about="Runs a JSONata expression as a transform would. Nothing is sent or written.">
        Transform playground
      </PageTitle>
      <form class="grid" onSubmit={load(id)}>
        <TextField
          label="Message id"
          value={id}
          onValue={setId}
          isRequired
          hint="Takes its payload, topic and source."
        />
        <div class="actions">
          <button type="submit">Load payload</button>
        </div>
      </form>
      <form onSubmit={run}>
        <div class="grid large">
          <Area label="Expression" value={expression} onValue={setExpression} />
          <Area label="Payload (JSON)" value={payload} onValue={setPayload} />
        </div>
        <div class="grid">
          <TextField label="Topic" value={topic} onValue={setTopic} hint="$topic in the expression" />
          <TextField label="Source" value={source} onValue={setSource} hint="$source in the expression" />
          <div class="actions">
            <button type="submit" class="primary">
              Run
            </button>
          </div>
        </div>
      </form>
      <ErrorNote>{error}</ErrorNote>
      <Section title="Result">
        <div role="status">
          {result === undefined ? <p class="quiet">Run the expression to see its result.</p> : <pre>{result}</pre>}
        </div>
      </Section>
    </>
  );
}
