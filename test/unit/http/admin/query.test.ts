import { describe, expect, test } from "@jest/globals";
import { adminRoutes } from "../../../../src/http/admin/routes.ts";
import { failOnLeaks } from "../../../support/leaks.ts";
import { recordingLog } from "../../../support/recorders.ts";
import { seen, startHttp } from "../harness.ts";
import { adminOptions } from "./adminOptions.ts";

failOnLeaks();

describe("the query of an admin route", () => {
  test.each([
    ["messages", "state=lost", '"state": one of pending, processing, sent, processed, dead is expected'],
    ["messages", "id=7", '"id": a UUID such as 01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f is expected'],
    ["messages", "key=%00", '"key": text without NUL and lone surrogates is expected: databases store neither'],
    ["failures", "state=sent", '"state": dead or parked is expected'],
    ["audit", "cursor=x", '"cursor": the cursor of an answer, unchanged, is expected'],
    ["parked", "limit=1e3", '"limit": a whole number from 1 to 10000 is expected'],
  ])("of %s with %s is refused by name", async (path, query, reason) => {
    await using http = await startHttp({ routes: adminRoutes(adminOptions(recordingLog().log)) });
    const response = await fetch(`http://127.0.0.1:${http.data.port}/admin/${path}?${query}`);
    const body = JSON.stringify({ error: `Invalid request: the query parameter ${reason}` });
    expect(await seen(response)).toEqual({ status: 400, body });
  });
});
