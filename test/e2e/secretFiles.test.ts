import { rename, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { beforeAll, describe, expect, test } from "@jest/globals";
import { Webhook } from "standardwebhooks";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import type { Receiver } from "../support/receiver.ts";
import { ordersTo, type Service, useServices } from "../support/service.ts";

const services = useServices("block");
failOnLeaks("block");

const [FIRST, SECOND, THIRD] = ["first-key-of-orders", "second-key-of-orders", "third-key-of-orders"] as const;
const [BEFORE, AFTER] = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"] as const;

let folder: string;
let receiver: Receiver;
let service: Service;
beforeAll(async () => {
  folder = services.folder();
  receiver = await services.receiver();
  const [fresh, former, signature] = await Promise.all([
    write("new", `${FIRST}\n`),
    write("old", FIRST),
    write("signing", BEFORE),
  ]);
  const signed = { path: "/signed", idempotencyKeyPath: "$.id", topic: "signed" };
  const signing = { scheme: "standard-webhooks", secrets: [`file:${signature}`] };
  const config = ordersTo(receiver, {
    sources: { orders: { auth: { keys: [`file:${fresh}`, `file:${former}`] } }, signed },
    destinations: { signed: { baseUrl: receiver.url, path: "/signed", signing } },
    routes: [
      { topicPattern: "orders.**", destination: "receiver" },
      { topicPattern: "signed", destination: "signed" },
    ],
  });
  service = await services.start({ database: await services.database(), config });
});

/** As tools write secrets: at once. */
async function write(name: string, text: string): Promise<string> {
  const file = path.join(folder, name);
  await writeFile(`${file}.tmp`, text);
  await rename(`${file}.tmp`, file);
  return file;
}

const UNUSABLE = "a secret file has a value that cannot be used, or cannot be read";
const linesOf = (text: string) => service.process.stdout.filter((line) => line.includes(text));

/** Requests under way at a time: some hundred a second. */
const SENDERS = 16;

describe("a secret file that changes", () => {
  test("rotates a credential without a restart, and without a refusal of either one while both are listed", async () => {
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
    await rm(path.join(folder, "old"));
    await write("new", "\n");
    await eventually(() => expect(linesOf(UNUSABLE)).toHaveLength(2));
    expect([await statusWith(SECOND), await statusWith(THIRD)]).toEqual([202, 202]);
    const lines = service.process.stdout.join("\n");
    for (const key of [FIRST, SECOND, THIRD]) expect(lines).not.toContain(key);
  }, 60_000);

  test("rotates the signature of a destination", async () => {
    const delivered = () => receiver.requests.filter(({ url }) => url === "/signed");
    const signedWith = (secret: string) => {
      const { body, headers } = delivered().at(-1) ?? {};
      return new Webhook(secret).verify(String(body), (headers ?? {}) as Record<string, string>);
    };
    let n = 0;
    const deliver = async () => {
      const count = delivered().length;
      await service.post({ id: `o-${n++}` }, { path: "/inbox/signed" });
      await eventually(() => expect(delivered()).toHaveLength(count + 1));
    };
    await deliver();
    expect(signedWith(BEFORE)).toMatchObject({ id: "o-0" });
    // A secret that is none changes nothing.
    const unusable = linesOf(UNUSABLE).length;
    await write("signing", "no base64!");
    await eventually(() => expect(linesOf(UNUSABLE)).toHaveLength(unusable + 1));
    expect(linesOf("no base64!")).toEqual([]);
    await deliver();
    expect(signedWith(BEFORE)).toMatchObject({ id: "o-1" });
    const changed = linesOf("a secret file has changed").length;
    await write("signing", AFTER);
    await eventually(() => expect(linesOf("a secret file has changed")).toHaveLength(changed + 1));
    await deliver();
    expect(signedWith(AFTER)).toMatchObject({ id: "o-2" });
    expect((await service.stop()).code).toBe(0);
  });
});
