import { createHmac, generateKeyPairSync } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import { Secret } from "../../../../src/model/secret.ts";
import { failOnLeaks } from "../../../support/leaks.ts";
import { seen, startHttp } from "../harness.ts";
import { SENDERS, type Signing } from "./senders.ts";
import { authOf, startSource } from "./source.ts";

failOnLeaks();

function senderOf(name: string) {
  const sender = SENDERS.find((each) => each.name === name);
  if (sender === undefined) throw new Error(`no sender ${name}`);
  return sender;
}

/** A source of a provider, with what signs for it. */
async function start(name: string, settings = {}) {
  const sender = senderOf(name);
  const key = sender.newKey();
  const http = await startSource({ ...authOf(sender, key.secret), ...settings });
  const send = (message: string, signing: Signing = key.signing) =>
    http.deliver(sender.send(signing, http.clock.ms, message));
  const request = (method: string, query: string, headers: Readonly<Record<string, string>> = {}) =>
    fetch(`http://127.0.0.1:${http.data.port}/inbox/orders${query}`, { method, headers });
  return Object.assign(http, { send, request, key });
}

describe("Slack's url_verification", () => {
  const message =
    '{"token":"t","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P","type":"url_verification"}';

  test("is answered with its challenge and stored nowhere", async () => {
    await using http = await start("slack");
    const response = await http.send(message);
    expect(response.headers.get("content-type")).toBe("text/plain; charset=utf-8");
    expect(response.headers.get("x-content-type-options")).toBe("nosniff");
    expect(await seen(response)).toEqual({
      status: 200,
      body: "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P",
    });
    expect(http.store.rows).toEqual([]);
    expect(http.calls).toEqual([]);
  });

  test("is refused when its signature is wrong", async () => {
    await using http = await start("slack");
    expect((await http.send(message, "other")).status).toBe(401);
  });
});

describe("Zoom's endpoint.url_validation", () => {
  test("is answered with its token, encrypted with the secret that signed it", async () => {
    const sender = senderOf("zoom");
    const [one, two] = [sender.newKey(), sender.newKey()];
    await using http = await startSource(authOf(sender, one.secret, two.secret));
    const message = '{"event":"endpoint.url_validation","payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"}}';
    for (const { signing } of [one, two]) {
      const encryptedToken = createHmac("sha256", String(signing)).update("qgg8vlvZRS6UYooatFL8Aw").digest("hex");
      const response = await http.deliver(sender.send(signing, http.clock.ms, message));
      const { status, body } = await seen(response);
      expect({ status, body: JSON.parse(body) }).toEqual({
        status: 200,
        body: { plainToken: "qgg8vlvZRS6UYooatFL8Aw", encryptedToken },
      });
    }
    expect((await http.deliver(sender.send("other", http.clock.ms, message))).status).toBe(401);
    expect(http.store.rows).toEqual([]);
  });
});

describe("Meta's subscription", () => {
  const query = (token: string) => `?hub.mode=subscribe&hub.verify_token=${token}&hub.challenge=1158201444`;

  test("gets its challenge with the right token", async () => {
    await using http = await start("meta", { verifyToken: new Secret("meatyhamhock") });
    expect(await seen(await http.request("GET", query("meatyhamhock")))).toEqual({ status: 200, body: "1158201444" });
    expect(http.store.rows).toEqual([]);
  });

  test.each([
    query("meatyhamhocK"),
    query(""),
    "?hub.mode=subscribe&hub.challenge=1",
    "?hub.verify_token=meatyhamhock",
    "",
  ])("gets 403 for %j", async (text) => {
    await using http = await start("meta", { verifyToken: new Secret("meatyhamhock") });
    const { status, body } = await seen(await http.request("GET", text));
    expect(status).toBe(403);
    expect(body).not.toContain("meatyhamhock");
  });

  test("gets its challenge with each of several tokens, and with a token's new value", async () => {
    const [fresh, former] = [new Secret("new token"), new Secret("old token")];
    await using http = await start("meta", { verifyTokens: [fresh, former] });
    const statusWith = async (token: string) => (await http.request("GET", query(encodeURIComponent(token)))).status;
    expect([await statusWith("new token"), await statusWith("old token")]).toEqual([200, 200]);
    expect(await statusWith("new tokenold token")).toBe(403);
    Secret.renew([former], "third token");
    expect([await statusWith("third token"), await statusWith("old token")]).toEqual([200, 403]);
  });

  test("gets 403 without verifyToken in the configuration", async () => {
    await using http = await start("meta");
    expect((await http.request("GET", query(""))).status).toBe(403);
    expect((await http.request("GET", query("undefined"))).status).toBe(403);
  });
});

describe("Microsoft Graph's validation", () => {
  test("gets its token back as text, decoded", async () => {
    await using http = await start("microsoft-graph");
    const response = await http.request("POST", "?validationToken=Validation%3A+Testing%20%3Cb%3E%C3%A9");
    expect(response.headers.get("content-type")).toBe("text/plain; charset=utf-8");
    expect(response.headers.get("x-content-type-options")).toBe("nosniff");
    expect(await seen(response)).toEqual({ status: 200, body: "Validation: Testing <b>é" });
    expect(http.store.rows).toEqual([]);
  });

  test("is of plain text: a notification to a URL with that query is a message", async () => {
    await using http = await start("microsoft-graph");
    const headers = { "Content-Type": "application/json; charset=utf-8" };
    expect((await http.request("POST", "?validationToken=x", headers)).status).toBe(401);
  });
});

describe("Discord's ping", () => {
  test.each([
    ['{"type":1,"id":"1"}', 200, '{"type":1}'],
    ['{"version":1,"application_id":"1","type":0}', 204, ""],
  ])("%s gets %i", async (message, status, body) => {
    await using http = await start("discord");
    expect(await seen(await http.send(message))).toEqual({ status, body });
    const foreign = generateKeyPairSync("ed25519").privateKey;
    expect((await http.send(message, foreign)).status).toBe(401);
    expect(http.store.rows).toEqual([]);
  });
});

test("Intercom's HEAD gets 200, and any other method 405", async () => {
  await using http = await start("intercom");
  expect((await http.request("HEAD", "")).status).toBe(200);
  const refused = await http.request("GET", "");
  expect(refused.status).toBe(405);
  expect(refused.headers.get("allow")).toBe("POST, HEAD");
  expect(http.store.rows).toEqual([]);
});

describe("the OPTIONS of CloudEvents", () => {
  const ask = (port: number, headers: Record<string, string>) =>
    fetch(`http://127.0.0.1:${port}/inbox/orders`, { method: "OPTIONS", headers });

  test("gets the origin that is listed", async () => {
    await using http = await startHttp({ route: { webhookOrigins: ["eventgrid.azure.net"] } });
    const response = await ask(http.data.port, {
      "WebHook-Request-Origin": "EventGrid.azure.net",
      "WebHook-Request-Rate": "120",
    });
    expect(response.status).toBe(200);
    expect(response.headers.get("webhook-allowed-origin")).toBe("EventGrid.azure.net");
    expect(response.headers.get("webhook-allowed-rate")).toBe("*");
    expect(response.headers.get("allow")).toBe("POST");
    expect(http.store.rows).toEqual([]);
  });

  test("gets 403 for another origin and 400 without one; with * any origin passes", async () => {
    await using http = await startHttp({ route: { webhookOrigins: ["eventgrid.azure.net"] } });
    expect((await ask(http.data.port, { "WebHook-Request-Origin": "example.com" })).status).toBe(403);
    expect((await ask(http.data.port, {})).status).toBe(400);
    await using open = await startHttp({ route: { webhookOrigins: ["*"] } });
    expect((await ask(open.data.port, { "WebHook-Request-Origin": "example.com" })).status).toBe(200);
  });

  test("gets 405 if the source lists no origins", async () => {
    await using http = await startHttp();
    const response = await ask(http.data.port, { "WebHook-Request-Origin": "eventgrid.azure.net" });
    expect(response.status).toBe(405);
    expect(response.headers.get("allow")).toBe("POST");
  });
});
