import { describe, expect, test } from "@jest/globals";
import { failOnLeaks } from "../support/leaks.ts";
import { useServices } from "../support/service.ts";
import { within } from "../support/within.ts";
import { anyBody, MAX_BODY_BYTES } from "./receipts/bodies.ts";
import { Dice } from "./receipts/dice.ts";
import { CONFIGURATION, type Message, SOURCES } from "./receipts/expected.ts";
import { anyHeaders, COMPARED_HEADER } from "./receipts/headers.ts";
import { describeMessage, Ledger, type StoredRow } from "./receipts/ledger.ts";
import { Sender } from "./receipts/sender.ts";
import { runsOf, SEED } from "./settings.ts";

const services = useServices();
failOnLeaks();

const BATCHES = runsOf(8);
const BATCH_SIZE = 1000;
/** Of a batch, so many messages do not say how long they are. */
const CHUNKED = 100;
/** For a batch, on a machine that does much else. */
const ANSWER_TIMEOUT_MS = 30_000;

describe("the HTTP sources", () => {
  test("answer eight thousand messages of any bytes as documented, and store what they say they have stored", async () => {
    const database = await services.database();
    const config = { inbox: { maxBodyBytes: MAX_BODY_BYTES }, sources: CONFIGURATION };
    const service = await services.start({ database, config, roles: ["ingest"] });
    const sender = new Sender(service.port);
    services.defer(() => sender.close());
    const dice = new Dice(SEED);
    const ledger = new Ledger();
    const sendAll = async (messages: readonly Message[]) => {
      const sent = messages.map((message) => sender.send(message));
      const answers = await within(ANSWER_TIMEOUT_MS, `answering ${messages.length} messages`, Promise.all(sent));
      for (const [n, message] of messages.entries()) {
        const answer = answers[n] ?? { status: 0, contentType: undefined, text: "" };
        const fault = ledger.enter(message, answer);
        if (fault !== undefined) throw new Error(`${fault}, found ${answer.status} ${answer.text}\n${replay(message)}`);
      }
      return answers;
    };
    const sendBatch = async (messages: readonly Message[], batch: number) => {
      await sendAll(messages);
      const good = SOURCES.map((source) => goodOne(source, batch));
      expect((await sendAll(good)).map(({ status }) => status)).toEqual(good.map(() => 202));
    };

    let sending: Promise<unknown> = Promise.resolve();
    for (let batch = 0; batch < BATCHES; batch += 1) {
      // Made while the one before is under way.
      const messages = Array.from({ length: BATCH_SIZE }, (_, n) => anyMessage(dice, `${batch}-${n}`, n < CHUNKED));
      await sending;
      sending = sendBatch(messages, batch);
    }
    await sending;

    const rows = await database.query<StoredRow & Record<string, unknown>>(
      "SELECT id, source, payload, headers->>$1 AS header FROM inbox",
      [COMPARED_HEADER],
    );
    expect(ledger.faults(rows).slice(0, 10)).toEqual([]);
    // Each kind of answer came often: the messages are neither all good nor all broken.
    for (const kind of ["taken 202", "taken 200", "filtered 202", "refused 400", "refused 413"]) {
      expect([kind, ledger.counts[kind]]).toEqual([kind, expect.any(Number)]);
      expect(ledger.counts[kind]).toBeGreaterThan(5 * BATCHES);
    }
    expect(await service.metric("svc_inbox_rejections_total")).toBe(ledger.counts["refused 400"]);
  }, 300_000);
});

function anyMessage(dice: Dice, unique: string, isChunked: boolean): Message {
  return { source: dice.pick(SOURCES), headers: anyHeaders(dice), body: anyBody(dice, unique), isChunked };
}

/** `whole` takes a message that is nothing but its key. */
function goodOne(source: Message["source"], batch: number): Message {
  const id = `good-${batch}`;
  const document = source === "whole" ? id : { id, key: "k", type: "created" };
  return { source, headers: { [COMPARED_HEADER]: id }, body: Buffer.from(JSON.stringify(document)), isChunked: false };
}

function replay(message: Message): string {
  return `SVC_TEST_SEED=${SEED} makes the same messages again; this one: ${describeMessage(message)}`;
}
