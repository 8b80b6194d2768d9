import { expect, test } from "@jest/globals";
import { failOnLeaks } from "../../../support/leaks.ts";
import { SENDERS } from "./senders.ts";
import { authOf, startSource } from "./source.ts";

failOnLeaks();

/** A request of a provider with two events, and the same again as its retry would be. */
interface BatchCase {
  readonly path: string;
  readonly request: (secret: string, attempt: number) => unknown;
  readonly expected: readonly { readonly key: string | RegExp; readonly type: string }[];
}

const CASES: Readonly<Record<string, BatchCase>> = {
  sendgrid: {
    path: "$[*]",
    request: () => [
      { sg_event_id: "sg-1", event: "open", email: "a@example.com" },
      { sg_event_id: "sg-2", event: "click", email: "a@example.com" },
    ],
    expected: [
      { key: "sg-1", type: "open" },
      { key: "sg-2", type: "click" },
    ],
  },
  hubspot: {
    path: "$[*]",
    request: (_, attemptNumber) => [
      { eventId: 100, subscriptionId: 25, occurredAt: 1701, subscriptionType: "contact.creation", attemptNumber },
      { eventId: 101, subscriptionId: 26, occurredAt: 1702, subscriptionType: "contact.deletion", attemptNumber },
    ],
    expected: [
      { key: "joined:100:25:1701", type: "contact.creation" },
      { key: "joined:101:26:1702", type: "contact.deletion" },
    ],
  },
  "microsoft-graph": {
    path: "$.value[*]",
    request: (clientState) => ({
      value: [
        { changeType: "created", clientState, resource: "users/1/messages/2" },
        { lifecycleEvent: "missed", clientState, subscriptionId: "s" },
      ],
    }),
    expected: [
      { key: /^sha256:/, type: "created" },
      { key: /^sha256:/, type: "missed" },
    ],
  },
};

test.each(Object.entries(CASES))("each event of a request of %s has its own key and type", async (name, batch) => {
  const sender = SENDERS.find((each) => each.name === name);
  if (sender === undefined) throw new Error(`there is no sender ${name}`);
  const { signing, secret } = sender.newKey();
  await using http = await startSource(authOf(sender, secret), { path: batch.path });
  const deliver = (attempt: number) =>
    http.deliver(sender.send(signing, http.clock.ms, JSON.stringify(batch.request(secret, attempt))));

  expect((await deliver(0)).status).toBe(202);
  const stored = batch.expected.map(({ key, type }) => ({
    idempotencyKey: typeof key === "string" ? key : expect.stringMatching(key),
    eventType: type,
  }));
  expect(http.store.rows).toMatchObject(stored);
  expect(new Set(http.store.rows.map(({ idempotencyKey }) => idempotencyKey)).size).toBe(2);

  const again = await deliver(1);
  expect([again.status, await again.json()]).toEqual([
    200,
    { items: batch.expected.map(() => ({ status: 200, body: { status: "duplicate" } })) },
  ]);
});
