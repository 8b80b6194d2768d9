import { describe, expect, test } from "@jest/globals";
import { InterruptedError, NotInListError, type Replay } from "../../../../src/core/operations/replay.ts";
import type { ReplayRequest } from "../../../../src/core/operations/replayRequest.ts";
import { adminRoutes } from "../../../../src/http/admin/routes.ts";
import { StoppingError, StoreError } from "../../../../src/model/errors.ts";
import { failOnLeaks } from "../../../support/leaks.ts";
import { recordingLog } from "../../../support/recorders.ts";
import { postHead, RawClient, seen, startHttp } from "../harness.ts";
import { adminOptions } from "./adminOptions.ts";

failOnLeaks();

const PATH = "/admin/replay";

/** The admin routes over a replay that writes down what it was asked. */
async function start(
  run: (request: ReplayRequest) => Promise<{ readonly moved: number }> = async () => ({ moved: 3 }),
) {
  const asked: ReplayRequest[] = [];
  const { log, lines } = recordingLog();
  const routes = adminRoutes({
    ...adminOptions(log),
    replay: {
      run(request: ReplayRequest) {
        asked.push(request);
        return run(request);
      },
    } as unknown as Replay,
  });
  const http = await startHttp({ routes });
  const post = (body: string | Uint8Array) => http.post(body, {}, PATH);
  return { ...http, asked, lines, post };
}

const error = (status: number, message: string, more: object = {}) => ({
  status,
  body: JSON.stringify({ error: message, ...more }),
});

describe("POST /admin/replay", () => {
  test("runs the replay that the body asks for, and answers with the number of rows moved", async () => {
    await using http = await start();
    const body = { topic: "a", destination: "shop", createdAfter: "2025-01-31T12:00:00+01:00", other: 1, ids: null };
    expect(await seen(await http.post(JSON.stringify(body)))).toEqual({
      status: 200,
      body: '{"moved":3,"ignored":["other"]}',
    });
    expect(http.asked).toEqual([{ topic: "a", destination: "shop", createdAfter: "2025-01-31T11:00:00.000000Z" }]);
  });

  test("names what it ignores, in the answer and the log: ten names at most, and the beginning of each", async () => {
    await using http = await start();
    expect(await seen(await http.post('{"state":"dead","dryRun":true,"destinaton":"shop"}'))).toEqual({
      status: 200,
      body: '{"moved":3,"ignored":["dryRun","destinaton"]}',
    });
    const fields = { path: PATH, ignored: "dryRun, destinaton" };
    expect(http.lines).toContainEqual({ level: "warn", message: "an admin request has unknown fields", fields });
    const unknown = Array.from({ length: 12 }, (_, n) => `"${n}${n === 0 ? "x".repeat(80) : "y"}":1`);
    const { body } = await seen(await http.post(`{"topic":"a",${unknown.join(",")}}`));
    const url = `http://127.0.0.1:${http.data.port}${PATH}?dryRun=true`;
    const asked = await fetch(url, { method: "POST", body: '{"topic":"a"}' });
    expect(await seen(asked)).toEqual({ status: 200, body: '{"moved":3,"ignored":["dryRun"]}' });
    const { ignored } = JSON.parse(body) as { ignored: string[] };
    expect([ignored.length, ignored[0]]).toEqual([10, `0${"x".repeat(59)}`]);
    expect((await seen(await http.post('{"topic":"a"}'))).body).toBe('{"moved":3}');
  });

  test("takes null as a destination, beside another filter, and as no value of other fields", async () => {
    await using http = await start();
    await http.post('{"state":"dead","destination":null,"reason":"no route","topic":null}');
    expect(http.asked).toEqual([{ state: "dead", destination: null, reason: "no route" }]);
  });

  test.each(["", "{}", '{"unknown":1}', '{"topic":null}', '{"destination":null}'])(
    "asks for a filter if there is none: %j",
    async (body) => {
      await using http = await start();
      expect(await seen(await http.post(body))).toEqual(error(400, "A replay needs at least one filter."));
      expect(http.asked).toEqual([]);
    },
  );

  test("refuses a body above the cap", async () => {
    await using http = await start();
    expect(await seen(await http.post("x".repeat(201)))).toEqual(error(413, "Request body exceeds 200 bytes"));
  });

  test.each<[string, unknown, ReturnType<typeof error>]>([
    [
      "the database fails",
      new InterruptedError("moved", 2, new StoreError("unavailable", "gone")),
      error(500, "Storage failed", { moved: 2 }),
    ],
    [
      "the service stops",
      new InterruptedError("moved", 5, new StoppingError(), "2026-01-05T08:30:00.000000Z"),
      error(503, "Service is shutting down", { moved: 5, finishedBefore: "2026-01-05T08:30:00.000000Z" }),
    ],
    [
      "a topic has no such list",
      new InterruptedError("moved", 3, new NotInListError("a", "shop")),
      error(
        400,
        'Invalid request: the topic "a" has no route with a list of destinations that names "shop": add it to that list, or choose other topics; ended early, after 3 rows were moved',
      ),
    ],
    ["there is a bug", new InterruptedError("moved", 1, new Error("a bug")), error(500, "Internal error")],
    ["there is another bug", new Error("a bug"), error(500, "Internal error")],
  ])("tells what was moved when %s", async (_when, thrown, answer) => {
    await using http = await start(() => Promise.reject(thrown));
    expect(await seen(await http.post('{"topic":"a"}'))).toEqual(answer);
  });

  test("continues when its caller hangs up", async () => {
    let finish = (_result: { readonly moved: number }): void => {};
    let begun = (): void => {};
    const running = new Promise<void>((resolve) => {
      begun = resolve;
    });
    const result = new Promise<{ readonly moved: number }>((resolve) => {
      finish = resolve;
    });
    await using http = await start(() => {
      begun();
      return result;
    });
    const client = new RawClient(http.data.port);
    client.send(`${postHead(["Content-Length: 13"], PATH)}{"topic":"a"}`);
    await running;
    client.destroy();
    await client.closed;
    finish({ moved: 9 });
    await result;
    expect((await fetch(`http://127.0.0.1:${http.data.port}/`)).status).toBe(200);
  });

  test("logs why the database failed, which the answer does not tell", async () => {
    await using http = await start(() => Promise.reject(new StoreError("busy", "the row cannot be changed now")));
    expect(await seen(await http.post('{"topic":"a"}'))).toEqual(error(500, "Storage failed"));
    const fields = { path: PATH, code: "busy", reason: "the row cannot be changed now" };
    expect(http.lines).toContainEqual({ level: "error", message: "an admin request failed", fields });
  });
});
