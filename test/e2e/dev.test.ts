import { existsSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { beforeAll, expect, test } from "@jest/globals";
import { isAlive } from "../support/isAlive.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { freePort } from "../support/ports.ts";
import type { RunningProcess } from "../support/processes.ts";
import { useServices } from "../support/service.ts";

const services = useServices("block");
failOnLeaks("block");

let folder: string;
beforeAll(() => {
  folder = services.folder();
});

/** Starts `svc dev` in the folder as a terminal would, and reads the address off the curl line it prints. */
async function dev(variables: Readonly<Record<string, string>> = {}) {
  const env = { SVC_SERVER_HTTPPORT: String(await freePort()), ...variables };
  const child = services.processes.svc(["dev"], { cwd: folder, env });
  const [, url] = await child.waitForLine(/curl -i (http:\S+) /, 40_000);
  if (url === undefined) throw new Error("no address on the curl line");
  const postgres = Number(readFileSync(path.join(folder, ".svc/postgres/data/postmaster.pid"), "utf8").split("\n")[0]);
  return { child, url: url.replace("localhost", "127.0.0.1"), postgres };
}

/** Sends what the curl line sends. */
async function post(url: string, id: string): Promise<{ readonly status: number; readonly text: string }> {
  const body = JSON.stringify({ id, type: "created", customer: "c-1" });
  const response = await fetch(url, { method: "POST", body, headers: { connection: "close" } });
  return { status: response.status, text: await response.text() };
}

async function interrupt(child: RunningProcess) {
  child.kill("SIGINT");
  return (await child.exited).code;
}

/** It has no console, and says nothing of one. */
async function expectNoConsole({ child, url }: Awaited<ReturnType<typeof dev>>) {
  await child.waitForLine(/^Ctrl-C stops everything/);
  expect(child.lines.filter((line) => line.includes("/console"))).toEqual([]);
  const answer = await fetch(new URL("/console", url), { headers: { connection: "close" } });
  expect(answer.status).toBe(404);
}

test("svc dev in an empty folder is a running service whose data stays, and Ctrl-C ends all of it", async () => {
  const first = await dev();
  expect(existsSync(path.join(folder, "svc.yml"))).toBe(true);
  expect((await post(first.url, "1")).status).toBe(202);
  await first.child.waitForLine(/delivered {2}POST \/orders {2}message [0-9a-f-]{36}/, 2000);
  await first.child.waitForLine(/^ +\{"id":"1","type":"created","customer":"c-1"\}$/, 2000);

  const [, address = ""] = await first.child.waitForLine(/^Console {2}(http:\S+)$/, 2000);
  const page = await fetch(address, { headers: { connection: "close" } });
  expect([page.status, page.headers.get("content-type")]).toEqual([200, "text/html; charset=utf-8"]);
  const destinations = address.replace("/console", "/admin/destinations");
  expect((await fetch(destinations, { headers: { connection: "close" } })).status).toBe(200);

  // Elsewhere on the same machine nothing listens on its port.
  await expect(fetch(first.url.replace("127.0.0.1", "127.0.0.2"))).rejects.toThrow("fetch failed");

  const urlFile = path.join(folder, ".svc/database-url");
  expect(statSync(urlFile).mode & 0o077).toBe(0);
  const password = new URL(readFileSync(urlFile, "utf8").trim()).password;
  expect(password.length).toBeGreaterThan(0);
  expect(first.child.lines.join("\n")).not.toContain(password);

  expect(isAlive(first.postgres)).toBe(true);
  expect(await interrupt(first.child)).toBe(0);
  expect(isAlive(first.postgres)).toBe(false);

  // On the network its console would be open to everybody.
  const second = await dev({ SVC_SERVER_HOST: "0.0.0.0" });
  await expectNoConsole(second);
  expect(await post(second.url, "1")).toEqual({ status: 200, text: '{"status":"duplicate"}' });
  expect((await post(second.url, "2")).status).toBe(202);
  await second.child.waitForLine(/^ +\{"id":"2"/, 2000);
  expect(second.child.lines.filter((line) => line.startsWith("delivered"))).toHaveLength(1);

  const third = services.processes.svc(["dev"], { cwd: folder });
  expect((await third.exited).code).toBe(1);
  expect(third.stderr.join("\n")).toMatch(/in use: process \d+ is a PostgreSQL server on it/);

  expect(await interrupt(second.child)).toBe(0);
  expect(isAlive(second.postgres)).toBe(false);
}, 90_000);

test("svc dev has no console if the configuration does not want one", async () => {
  const plain = await dev({ SVC_ADMIN_CONSOLE: "false" });
  await expectNoConsole(plain);
  expect(await interrupt(plain.child)).toBe(0);
}, 90_000);
