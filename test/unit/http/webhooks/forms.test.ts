import { describe, expect, test } from "@jest/globals";
import { formToJson } from "../../../../src/adapters/sources/http/signedText.ts";
import { failOnLeaks } from "../../../support/leaks.ts";
import { seen } from "../harness.ts";
import { SENDERS } from "./senders.ts";
import { authOf, startSource } from "./source.ts";

failOnLeaks();

/** Sends a form that its provider signs, and gives what is stored. */
async function stored(name: string, message: string, type = "application/x-www-form-urlencoded") {
  const sender = SENDERS.find((each) => each.name === name);
  if (sender === undefined) throw new Error(`no sender ${name}`);
  const { signing, secret } = sender.newKey();
  await using http = await startSource(authOf(sender, secret));
  const sent = sender.send(signing, http.clock.ms, message);
  const response = await http.deliver({ ...sent, headers: { ...sent.headers, "content-type": type } });
  return { ...(await seen(response)), row: http.store.rows[0] };
}

describe("a form", () => {
  test("of GitHub is stored as the JSON of its payload, to the digit", async () => {
    const payload = '{"action":"opened","number":12345678901234567890,"text":"a & b = é"}';
    const { status, row } = await stored("github", `payload=${encodeURIComponent(payload)}`);
    expect(status).toBe(202);
    expect(row).toMatchObject({ payload, eventType: "pull_request" });
    // It is no form any more.
    expect(Object.keys(row?.headers ?? {}).map((header) => header.toLowerCase())).not.toContain("content-type");
  });

  test("of Slack's slash commands becomes an object, of its interactions the payload", async () => {
    const command = await stored("slack", "command=%2Fweather&text=94070+a%26b&trigger_id=13345224609.738");
    expect(JSON.parse(command.row?.payload ?? "")).toEqual({
      command: "/weather",
      text: "94070 a&b",
      trigger_id: "13345224609.738",
    });
    expect(command.row).toMatchObject({ idempotencyKey: "13345224609.738", eventType: "/weather" });
    const payload = '{"type":"block_actions","trigger_id":"1.2"}';
    const interaction = await stored("slack", `payload=${encodeURIComponent(payload)}`);
    expect(interaction.row).toMatchObject({ payload, idempotencyKey: "1.2", eventType: "block_actions" });
  });

  test("of Twilio becomes an object of texts", async () => {
    const { row } = await stored("twilio", "From=%2B14158675309&Body=1&Body=2&Empty=");
    expect(JSON.parse(row?.payload ?? "")).toEqual({ From: "+14158675309", Body: ["1", "2"], Empty: "" });
  });

  test("counts in any letter case and with parameters of the type", async () => {
    const { status } = await stored("github", "payload=%7B%7D", "Application/X-WWW-Form-Urlencoded; charset=utf-8");
    expect(status).toBe(202);
  });

  test.each([
    ["payload=no+json", "Invalid JSON"],
    ["", '"status":"none"'],
  ])("%j that holds no message gets 400", async (message) => {
    const { status, row } = await stored("github", message === "" ? "payload=" : message);
    expect(status).toBe(400);
    expect(row).toBeUndefined();
  });

  test("of too many fields gets 400, or 401 if its fields are signed, in no time", async () => {
    const message = "a=&".repeat(300_000);
    expect(await stored("slack", message)).toMatchObject({
      status: 400,
      body: '{"error":"the form has more than 1000 fields"}',
      row: undefined,
    });
    expect(await stored("twilio", message)).toMatchObject({
      status: 401,
      body: '{"error":"the form has more than 1000 fields"}',
      row: undefined,
    });
  });
});

test("no field reaches a prototype", () => {
  const json = String(formToJson(Buffer.from("__proto__=1&__proto__=2&constructor=3&toString="), undefined));
  expect(json).toBe('{"__proto__":["1","2"],"constructor":"3","toString":""}');
  expect(({} as Record<string, unknown>)["1"]).toBeUndefined();
});
