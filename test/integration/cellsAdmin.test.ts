import { randomUUID } from "node:crypto";
import { expect, test } from "@jest/globals";
import { adminRole } from "../../roles/admin.ts";
import { statusText } from "../../src/cli/status.ts";
import type { OverviewShown } from "../../src/core/operations/shown.ts";
import { BodyBudget } from "../../src/http/exchange.ts";
import type { MessageId } from "../../src/model/rows.ts";
import type { OperatorStore } from "../../src/ports/operatorStore.ts";
import { systemClock } from "../../src/time/clock.ts";
import { claimRequest, inboxRow, parked, relayRequest } from "../conformance/store/harness.ts";
import { composed } from "../support/cells.ts";
import { describedApi } from "../support/describedApi.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { postgresHarnesses } from "../support/postgresHarness.ts";
import { silentLog } from "../support/recorders.ts";
import { loadWith } from "../unit/config/support.ts";
import { startHttp } from "../unit/http/harness.ts";

failOnLeaks();

const open = postgresHarnesses();

const CONFIG = `
sources: { orders: { path: /orders, idempotencyKeyPath: $.id, topic: orders } }
destinations: { billing: { baseUrl: http://h } }
routes: [{ topicPattern: "**", destination: billing }]
admin: { enabled: true, insecure: true }
`;

/** The admin routes over a store; each answer is held against the OpenAPI document. */
async function startAdmin(store: OperatorStore) {
  const { routes } = adminRole({
    config: loadWith(CONFIG),
    configText: "",
    store,
    clock: systemClock,
    log: silentLog,
    redact: (text: string) => text,
    secrets: { mask: (text: string) => text, add: () => () => {} },
    bodies: new BodyBudget(1_000_000, systemClock),
    wakes: { wake: () => {} },
  } as unknown as Parameters<typeof adminRole>[0]);
  const http = await startHttp({ routes: routes ?? [] });
  const url = (path: string) => `http://127.0.0.1:${http.data.port}${path}`;
  const api = describedApi(await (await fetch(url("/openapi.json"))).text());
  const ask = async (method: "GET" | "POST", path: string, body?: object) => {
    const answer = await fetch(url(path), { method, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
    const text = await answer.text();
    const described = path.split("?", 1)[0]?.replace(/messages\/[0-9a-f-]{36}/, "messages/{id}") ?? "";
    const place = described.replace("destinations/billing", "destinations/{name}");
    api.check(method, place, { status: answer.status, headers: Object.fromEntries(answer.headers), text });
    return { status: answer.status, body: JSON.parse(text) };
  };
  return { ask, [Symbol.asyncDispose]: () => http.stop() };
}

test("the admin routes name the cell of what they show, and the cells that are missing", async () => {
  await using a = await open();
  await using b = await open();
  let isReady = true;
  const store = composed([a.store, b.store], { isReady: () => isReady });
  await using admin = await startAdmin(store);
  const [inA] = await a.insertOutbox([{ topic: "orders", key: "k" }]);
  const [inB] = await b.insertOutbox([{ topic: "orders", key: "k" }]);
  for (const { store: own } of [a, b]) {
    await own.outbox.settle((await own.outbox.claim(claimRequest())).rows.map(parked));
  }
  await b.store.inbox.insert([inboxRow()]);
  await b.store.inbox.relay(relayRequest());
  const cellsIn = (rows: readonly { id: MessageId; cell?: string }[]) => rows.map(({ cell }) => cell).toSorted();

  const { body: list } = await admin.ask("GET", "/admin/messages?limit=2");
  expect(list.messages).toHaveLength(2);
  expect(list.messages[0].cell).toBe("b");
  const { body: rest } = await admin.ask("GET", `/admin/messages?limit=10&cursor=${list.cursor}`);
  expect(cellsIn([...list.messages, ...rest.messages])).toEqual(["a", "b", "b"]);
  const forged = Buffer.from(JSON.stringify([JSON.stringify(["1", "x"]), null])).toString("base64url");
  expect(await admin.ask("GET", `/admin/messages?cursor=${forged}`)).toMatchObject({ status: 404 });
  expect((await admin.ask("GET", `/admin/messages/${inB}`)).body).toMatchObject({
    id: inB,
    cell: "b",
    state: "parked",
  });
  const { body: parkedRows } = await admin.ask("GET", "/admin/parked");
  expect(
    parkedRows.rows.map(({ cell, sequence }: { cell: string; sequence: string }) => `${cell} ${sequence}`),
  ).toEqual(["a 1", "b 1"]);
  expect(parkedRows).not.toHaveProperty("missingCells");
  expect(cellsIn((await admin.ask("GET", "/admin/blocked-keys")).body.keys)).toEqual(["a", "b"]);

  isReady = false;
  expect((await admin.ask("GET", "/admin/parked")).body).toMatchObject({ rows: [{ cell: "a" }], missingCells: ["b"] });
  for (const path of ["messages", "audit", "failures", "blocked-keys", "destinations", `messages/${inA}`]) {
    expect(await admin.ask("GET", `/admin/${path}`)).toMatchObject({ status: 200, body: { missingCells: ["b"] } });
  }
  expect(await admin.ask("GET", `/admin/messages/${inB}`)).toEqual({
    status: 500,
    body: { error: `The cell b does not answer; the others have no message ${inB}` },
  });
  // The key has the form of an id.
  const row = inboxRow({ idempotencyKey: randomUUID() });
  await a.store.inbox.insert([row]);
  const { body: meant } = await admin.ask("GET", `/admin/messages?text=${row.idempotencyKey}`);
  expect(meant.messages).toMatchObject([{ id: row.id }]);
  for (const text of [randomUUID(), "order-17"]) {
    const error = "The cell b could not be asked; the others have no such message";
    expect(await admin.ask("GET", `/admin/messages?text=${text}`)).toEqual({ status: 500, body: { error } });
  }
  const discard = (which: object) => admin.ask("POST", "/admin/parked/discard", { ...which, reason: "gone" });
  expect(await discard({ ids: [inA] })).toEqual({ status: 200, body: { changed: 1 } });
  const inNone = { error: "The cell b could not be asked; rows there may be unchanged: repeat it", changed: 0 };
  for (const which of [{ all: true }, { ids: [inB] }])
    expect(await discard(which)).toEqual({ status: 500, body: inNone });
  const pause = await admin.ask("POST", "/admin/destinations/billing/pause", { reason: "they migrate" });
  expect(pause.status).toBe(200);
  const dead = { state: "dead", by: "alice" };
  const dryRun = await admin.ask("POST", "/admin/replays", { ...dead, dryRun: true });
  expect(dryRun).toMatchObject({
    status: 200,
    body: { count: 1, isExact: false, sample: [{ id: inA, cell: "a", sequence: "1" }] },
  });
  expect(await admin.ask("POST", "/admin/replay", dead)).toEqual({
    status: 500,
    body: {
      error:
        "The cell b did not answer when the replay began; the rows there were not moved: start another replay for them",
      moved: 1,
      finishedBefore: expect.stringMatching(/^2\S+Z$/),
    },
  });
  const { body: overview } = await admin.ask("GET", "/admin/overview");
  expect(overview.cells).toMatchObject([
    { name: "a", awaySince: null },
    { name: "b", awaySince: expect.any(String), reason: expect.stringMatching(/checked/) },
  ]);
  const text = statusText({
    ...(overview as OverviewShown),
    at: new Date(overview.at),
    replicas: null,
    cells: store.cells.names.map((name) => ({ name, awaySince: name === "b" ? new Date(0) : null, reason: "gone" })),
  });
  expect(text).toMatch(
    /^! the cell b does not answer, and its figures are missing: its tables have not been checked yet$/m,
  );
  expect(text).toMatch(/^a +ok\nb +away since 1970-01-01T00:00:00.000Z$/m);

  isReady = true;
  // Counts that were made without the cell are kept for a while: it is named as long.
  const answers: (readonly [isWhole: boolean, parked: number])[] = [];
  await eventually(async () => {
    const { body: later } = await admin.ask("GET", "/admin/overview");
    const isWhole = later.cells[1].awaySince === null;
    answers.push([isWhole, later.outbox.parked]);
    return isWhole;
  });
  // Of two counts each may be the first with the cell.
  const ofAll = overview.outbox.parked + 1;
  expect(answers.filter(([isWhole, parked]) => isWhole && parked !== ofAll)).toEqual([]);
});
