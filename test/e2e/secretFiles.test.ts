import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "@jest/globals";
import { Webhook } from "standardwebhooks";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { ordersTo, type Service, useServices } from "../support/service.ts";

const services = useServices();
failOnLeaks();

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), "svc-secrets-"));
});
afterEach(() => rm(folder, { recursive: true }));

/** As tools write secrets: at once. */
async function write(name: string, text: string): Promise<string> {
  const file = path.join(folder, name);
  await writeFile(`${file}.tmp`, text);
  await rename(`${file}.tmp`, file);
  return file;
}

const UNUSABLE = "a secret file has a value that cannot be used, or cannot be read";
const linesOf = (service: Service, text: string) => service.process.stdout.filter((line) => line.includes(text));

const [FIRST, SECOND, THIRD] = ["first-key-of-orders", "second-key-of-orders", "third-key-of-orders"] as const;
/** Requests under way at a time: some hundred a second. */
const SENDERS = 16;

describe("a secret file that changes", () => {
  test("rotates a credential without a restart, and without a refusal of either one while both are listed", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const [fresh, former] = await Promise.all([write("new", `${FIRST}\n`), write("old", FIRST)]);
    const sources = { orders: { auth: { keys: [`file:${fresh}`, `file:${former}`] } } };
    const service = await services.start({ database, config: ordersTo(receiver, { sources }) });
    let sent = 0;
    const statusWith = async (key: string) =>
      (await service.post({ id: `o-${sent++}`, type: "x" }, { headers: { "x-api-key": key } })).status;
    const counts = new Map<string, number>();
    let isOver = false;
    const send = async (key: string) => {
      while (!isOver) {
        const status = await statusWith(key);
        counts.set(`${key} ${status}`, (counts.get(`${key} ${status}`) ?? 0) + 1);
      }
    };
    const startedAt = performance.now();
    const senders = Array.from({ length: SENDERS / 2 }, () => send(FIRST));
    await write("new", `${SECOND}\r\n`);
    await eventually(async () => expect(await statusWith(SECOND)).toBe(202));
    senders.push(...Array.from({ length: SENDERS / 2 }, () => send(SECOND)));
    const both = sent;
    await eventually(() => expect(sent).toBeGreaterThan(both + 500));
    isOver = true;
    await Promise.all(senders);
    expect([...counts.keys()].toSorted()).toEqual([`${FIRST} 202`, `${SECOND} 202`]);
    expect(sent / ((performance.now() - startedAt) / 1000)).toBeGreaterThan(100);

    await write("old", THIRD);
    await eventually(async () => expect(await statusWith(FIRST)).toBe(401));
    expect([await statusWith(SECOND), await statusWith(THIRD)]).toEqual([202, 202]);
    // A file that has gone, or is empty, changes nothing.
    await rm(former);
    await write("new", "\n");
    await eventually(() => expect(linesOf(service, UNUSABLE)).toHaveLength(2));
    expect([await statusWith(SECOND), await statusWith(THIRD)]).toEqual([202, 202]);
    const lines = service.process.stdout.join("\n");
    for (const key of [FIRST, SECOND, THIRD]) expect(lines).not.toContain(key);
    expect((await service.stop()).code).toBe(0);
  }, 60_000);

  test("rotates the signature of a destination", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const [before, after] = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"];
    const file = await write("signing", before);
    const signing = { scheme: "standard-webhooks", secrets: [`file:${file}`] };
    const config = ordersTo(receiver, { destinations: { receiver: { signing } } });
    const service = await services.start({ database, config });
    const signedWith = (secret: string) => {
      const { body, headers } = receiver.requests.at(-1) ?? {};
      return new Webhook(secret).verify(String(body), (headers ?? {}) as Record<string, string>);
    };
    let n = 0;
    const deliver = async () => {
      const count = receiver.requests.length;
      await service.post({ id: `o-${n++}`, type: "x" });
      await receiver.received(count + 1);
    };
    await deliver();
    expect(signedWith(before)).toMatchObject({ id: "o-0" });
    // A secret that is none changes nothing.
    await write("signing", "no base64!");
    await eventually(() => expect(linesOf(service, UNUSABLE)).toHaveLength(1));
    expect(linesOf(service, "no base64!")).toEqual([]);
    await deliver();
    expect(signedWith(before)).toMatchObject({ id: "o-1" });
    await write("signing", after);
    await eventually(() => expect(linesOf(service, "a secret file has changed")).toHaveLength(1));
    await deliver();
    expect(signedWith(after)).toMatchObject({ id: "o-2" });
    expect((await service.stop()).code).toBe(0);
  });
});
