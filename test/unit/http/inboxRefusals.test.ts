import { expect, test } from "@jest/globals";
import { Secret } from "../../../src/model/secret.ts";
import { startHttp } from "./harness.ts";

/** The statuses and texts of all answers of the source. */
async function started(options: Omit<NonNullable<Parameters<typeof startHttp>[0]>, "onAnswer"> = {}) {
  const answers: (readonly [number, string])[] = [];
  const http = await startHttp({ ...options, onAnswer: (status, body) => answers.push([status, body]) });
  return Object.assign(http, { answers });
}

const error = (text: string) => JSON.stringify({ error: text });

test("the source gets every answer once, also before it reads the body", async () => {
  await using http = await started({ maxBodyBytes: 100, route: { rateLimit: { requestsPerMinute: 4 } } });
  await http.post('{"id":"a"}');
  await http.post("no JSON");
  await http.post("{}");
  await http.post(JSON.stringify({ id: "x".repeat(100) }));
  await http.post('{"id":"b"}', { "content-encoding": "zip" });
  await fetch(`http://127.0.0.1:${http.data.port}/inbox/orders`);
  http.store.fault = { reject: new Error("away") };
  await http.post('{"id":"c"}');
  await http.post('{"id":"d"}');
  await http.post('{"id":"a"}', {}, "/inbox/ordres");
  expect(http.answers.map(([status]) => status)).toEqual([202, 400, 400, 413, 415, 405, 500, 429]);
  expect(http.answers.slice(1, 5).map(([, body]) => body)).toEqual([
    error("Invalid JSON"),
    error("no idempotency key at $.id: a non-empty string, a number or a boolean is expected"),
    error("Request body exceeds 100 bytes"),
    expect.stringContaining("The Content-Encoding of the body is not supported"),
  ]);
});

test("the source gets refused credentials", async () => {
  await using http = await started({ route: { auth: { kind: "bearer", token: new Secret("s3cret") } } });
  await http.post('{"id":"a"}');
  expect(http.answers).toEqual([[401, error("missing Authorization header")]]);
});

test("the source gets each refused item of a batch that is stored in part", async () => {
  await using http = await started();
  const send = (body: string) => http.post(body, { "content-type": "application/x-ndjson" });
  await send('{"id":"a"}\n{}\n{"id":"b"}\n{}');
  await send("{}\n{}");
  const refused = http.answers
    .filter(([status]) => status >= 400)
    .map(([status, body]) => [status, JSON.parse(body).error]);
  const reason = "no idempotency key at $.id: a non-empty string, a number or a boolean is expected";
  expect(refused).toEqual([
    [400, reason],
    [400, reason],
    [400, `item 0: ${reason}`],
  ]);
});
