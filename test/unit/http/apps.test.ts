import { describe, expect, test } from "@jest/globals";
import { httpRoute } from "../../../src/http/routes.ts";
import { failOnLeaks } from "../../support/leaks.ts";
import { seen, startHttp } from "./harness.ts";

failOnLeaks();

const NOT_FOUND = { status: 404, body: '{"error":"Not found"}' };
const OPERATOR_PATHS = ["/health/live", "/health/ready", "/health", "/metrics"];

const get = (port: number | undefined, path: string, method = "GET") =>
  fetch(`http://127.0.0.1:${port}${path}`, { method });

describe("the data port", () => {
  test("serves the operator routes when there is no management port", async () => {
    await using http = await startHttp();
    for (const path of OPERATOR_PATHS) expect((await get(http.data.port, path)).status).toBe(200);
  });

  test("answers 404 to them when there is one", async () => {
    await using http = await startHttp({ management: true });
    for (const path of OPERATOR_PATHS) expect(await seen(await get(http.data.port, path))).toEqual(NOT_FOUND);
    expect((await get(http.data.port, "/")).status).toBe(200);
  });

  test("answers 404 to what nothing serves", async () => {
    await using http = await startHttp();
    for (const path of ["/nowhere", "/Health", "/health/", "/%ZZ", "/metrics/x"]) {
      expect(await seen(await get(http.data.port, path))).toEqual(NOT_FOUND);
    }
  });

  test.each([
    ["/health", "POST", "GET, HEAD"],
    ["/health/ready", "DELETE", "GET, HEAD"],
    ["/", "POST", "GET, HEAD"],
    ["/health", "OPTIONS", "GET, HEAD"],
    ["/inbox/orders", "GET", "POST"],
    ["/inbox/orders?x=1", "PUT", "POST"],
    ["/inbox/orders", "OPTIONS", "POST"],
  ])("answers 405 with the methods of a path to another one: %s %s", async (path, method, allowed) => {
    await using http = await startHttp();
    const response = await get(http.data.port, path, method);
    expect(await seen(response)).toEqual({ status: 405, body: '{"error":"Method not allowed"}' });
    expect(response.headers.get("allow")).toBe(allowed);
  });

  test("answers 404 to every method of a path that it does not serve because there is a management port", async () => {
    await using http = await startHttp({ management: true });
    for (const method of ["GET", "POST"]) expect((await get(http.data.port, "/health", method)).status).toBe(404);
  });

  test("answers 500 to a fault of its own, and logs it", async () => {
    const broken = httpRoute("admin_parked_list", { summary: "", description: "", answers: [] }, async () => {
      throw new Error("a bug");
    });
    await using http = await startHttp({ routes: [broken] });
    expect(await seen(await get(http.data.port, "/admin/parked"))).toEqual({
      status: 500,
      body: '{"error":"Internal error"}',
    });
    expect(http.lines.at(-1)).toMatchObject({ level: "error", fields: { reason: "a bug" } });
  });
});

describe("the management port", () => {
  test("serves the operator routes and nothing else", async () => {
    await using http = await startHttp({ management: true });
    for (const path of OPERATOR_PATHS) {
      const { status, headers } = await get(http.management?.port, path);
      const found = [status, headers.get("cache-control"), headers.get("x-content-type-options")];
      expect(found).toEqual([200, "no-store", "nosniff"]);
    }
    expect(await seen(await get(http.management?.port, "/"))).toEqual(NOT_FOUND);
    expect(await seen(await get(http.management?.port, "/inbox/orders", "POST"))).toEqual(NOT_FOUND);
  });
});

describe("the operator routes", () => {
  test("answer 503 with the same body on both readiness paths when the service is not ready", async () => {
    await using http = await startHttp({ isReady: false });
    for (const path of ["/health/ready", "/health"]) {
      expect(await seen(await get(http.data.port, path))).toEqual({
        status: 503,
        body: '{"status":"unhealthy","components":{"database":{"status":"down"}}}',
      });
    }
  });
});
