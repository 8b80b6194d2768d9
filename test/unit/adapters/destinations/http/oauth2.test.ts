import { afterEach, beforeEach, describe, expect, test } from "@jest/globals";
import type { HttpDestinationEnvironment } from "../../../../../src/adapters/destinations/http/index.ts";
import type { HttpDestinationAuth } from "../../../../../src/adapters/destinations/http/kind.ts";
import { errorText } from "../../../../../src/model/errors.ts";
import { Secret } from "../../../../../src/model/secret.ts";
import { startBlackHole } from "../../../../support/blackHole.ts";
import { failOnLeaks } from "../../../../support/leaks.ts";
import { type Answer, Receiver } from "../../../../support/receiver.ts";
import { Destinations } from "./setup.ts";

const CLIENT_SECRET = "s3cret-of-the-client&+";
const destinations = new Destinations();
let receiver: Receiver;
let issuer: Receiver;

beforeEach(async () => {
  receiver = await Receiver.start();
  issuer = await Receiver.start();
});
afterEach(async () => {
  await destinations.close();
  await Promise.all([receiver.close(), issuer.close()]);
});
failOnLeaks();

const token = (name: string, fields: object = { expires_in: 3600 }): Answer => ({
  status: 200,
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ access_token: name, token_type: "Bearer", ...fields }),
});

function create(
  auth: Partial<Extract<HttpDestinationAuth, { kind: "oauth2" }>> = {},
  environment: Partial<HttpDestinationEnvironment> = {},
  timeoutMs = 10_000,
) {
  return destinations.create(
    {
      baseUrl: receiver.url,
      timeoutMs,
      auth: {
        kind: "oauth2",
        clientId: "the client",
        clientSecret: new Secret(CLIENT_SECRET),
        tokenUrl: `${issuer.url}/oauth/token?tenant=1`,
        extraParams: {},
        ...auth,
      },
    },
    environment,
  );
}

const sentTokens = () => receiver.requests.map(({ headers }) => headers.authorization);

describe("the token request", () => {
  test("is a form with the client's credentials in it", async () => {
    issuer.answer = token("t1");
    await create().publish();
    const [request] = issuer.requests;
    expect(request).toMatchObject({
      method: "POST",
      url: "/oauth/token?tenant=1",
      headers: { "content-type": "application/x-www-form-urlencoded", accept: "application/json" },
    });
    expect(request?.headers.authorization).toBeUndefined();
    expect(Object.fromEntries(new URLSearchParams(request?.body.toString()))).toEqual({
      grant_type: "client_credentials",
      client_id: "the client",
      client_secret: CLIENT_SECRET,
    });
    expect(sentTokens()).toEqual(["Bearer t1"]);
  });

  test("carries the scope and the extra parameters, which cannot change the grant", async () => {
    issuer.answer = token("t1");
    await create({ scope: "read write", extraParams: { audience: "https://api", grant_type: "password" } }).publish();
    expect(Object.fromEntries(new URLSearchParams(issuer.requests[0]?.body.toString()))).toMatchObject({
      grant_type: "client_credentials",
      scope: "read write",
      audience: "https://api",
    });
  });

  test("has the new secret after a rotation", async () => {
    issuer.answer = token("t1", { expires_in: 0 });
    const clientSecret = new Secret(CLIENT_SECRET);
    const { publish } = create({ clientSecret });
    await publish();
    Secret.renew([clientSecret], "the next secret");
    expect(clientSecret.isFollowed).toBe(true);
    await publish();
    const secrets = issuer.requests.map(({ body }) => new URLSearchParams(body.toString()).get("client_secret"));
    expect(secrets).toEqual([CLIENT_SECRET, "the next secret"]);
  });

  test("is one, however many rows wait for it", async () => {
    issuer.answer = token("t1");
    const { publish } = create();
    await Promise.all(Array.from({ length: 20 }, () => publish()));
    expect(issuer.requests).toHaveLength(1);
    expect(new Set(sentTokens())).toEqual(new Set(["Bearer t1"]));
    expect(receiver.requests).toHaveLength(20);
  });
});

describe("the token", () => {
  test("is used until it is nearly over, then renewed while the old one still serves", async () => {
    issuer.answerNext(token("t1", { expires_in: 600 }), token("t2", { expires_in: 600 }));
    const { publish, clock } = create();
    await publish();
    clock.advance(569_000);
    await publish();
    expect(issuer.requests).toHaveLength(1);
    clock.advance(2_000);
    await publish();
    await issuer.received(2);
    expect(sentTokens()).toEqual(["Bearer t1", "Bearer t1", "Bearer t1"]);
    clock.advance(60_000);
    await publish();
    expect(sentTokens().at(-1)).toBe("Bearer t2");
    expect(issuer.requests).toHaveLength(2);
  });

  test("serves on when its renewal fails, and the renewal is tried again after a pause", async () => {
    issuer.answerNext(token("t1", { expires_in: 600 }), { status: 500 }, token("t2"));
    const { publish, clock } = create();
    await publish();
    clock.advance(580_000);
    await publish();
    await issuer.received(2);
    await publish();
    expect(issuer.requests).toHaveLength(2);
    clock.advance(1_000);
    await publish();
    await issuer.received(3);
    expect(new Set(sentTokens())).toEqual(new Set(["Bearer t1"]));
  });

  test("is not used past its end", async () => {
    issuer.answerNext(token("t1", { expires_in: 60 }), token("t2"));
    const { publish, clock } = create();
    await publish();
    clock.advance(60_000);
    await publish();
    expect(sentTokens()).toEqual(["Bearer t1", "Bearer t2"]);
  });

  test.each([
    [{}, 299_000, "t1"],
    [{}, 300_000, "t2"],
    [{ expires_in: "600" }, 599_000, "t1"],
    [{ expires_in: null }, 300_000, "t2"],
    [{ expires_in: "soon" }, 300_000, "t2"],
    [{ expires_in: -5 }, 0, "t2"],
  ])("with %j in its answer: %d ms later the token sent is %s", async (fields, ms, sent) => {
    issuer.answerNext(token("t1", fields), token("t2"));
    const { publish, clock } = create();
    await publish();
    clock.advance(ms);
    await publish();
    expect(sentTokens()).toEqual(["Bearer t1", `Bearer ${sent}`]);
  });

  test("that is refused with 401 is renewed once, and the publish repeated once", async () => {
    issuer.answerNext(token("t1"), token("t2"));
    receiver.answerNext({ status: 401, body: "expired" }, { status: 200 });
    const { publish, calls } = create();
    await publish({ body: "again" });
    expect(sentTokens()).toEqual(["Bearer t1", "Bearer t2"]);
    expect(receiver.requests.map(({ body }) => body.toString())).toEqual(["again", "again"]);
    expect(calls).toEqual(["httpPublishResponse(4xx)", "httpPublishResponse(2xx)"]);
  });

  test("that is refused again fails the publish with the second answer", async () => {
    issuer.answerNext(token("t1"), token("t2"));
    receiver.answerNext({ status: 401, body: "first" }, { status: 401, body: "second" });
    const { failure } = create();
    expect(await failure()).toMatchObject({ code: "status_4xx", message: expect.stringMatching(/401: second$/) });
    expect(issuer.requests).toHaveLength(2);
  });

  test("is not renewed for another refusal, nor for a fixed credential", async () => {
    issuer.answer = token("t1");
    receiver.answer = { status: 403 };
    expect((await create().failure()).code).toBe("status_4xx");
    receiver.answer = { status: 401 };
    const fixed = destinations.create({
      baseUrl: receiver.url,
      auth: { kind: "basic", username: "u", password: new Secret("password") },
    });
    expect((await fixed.failure()).code).toBe("status_4xx");
    expect(receiver.requests).toHaveLength(2);
    expect(issuer.requests).toHaveLength(1);
  });

  test("is repeated after a refusal whose body stalls", async () => {
    issuer.answerNext(token("t1"), token("t2"));
    receiver.answerNext((_request, response) => {
      response.writeHead(401).write("half");
    });
    await create().publish();
    expect(sentTokens()).toEqual(["Bearer t1", "Bearer t2"]);
  });
});

describe("a token that cannot be had", () => {
  test.each<[string, Answer, string]>([
    [
      "a refusal",
      { status: 401, body: JSON.stringify({ error: "invalid_client", error_description: "no such client" }) },
      "was answered 401 (invalid_client: no such client)",
    ],
    ["a refusal that is no JSON", { status: 500, body: "<html>" }, "was answered 500"],
    ["a redirect", { status: 302, headers: { location: "/elsewhere" } }, "was answered 302"],
    ["an answer that is no JSON", { status: 200, body: "access_token=abc" }, "without a usable access_token"],
    ["an answer without a token", { status: 200, body: "{}" }, "without a usable access_token"],
    ["an empty token", token(""), "without a usable access_token"],
    ["a token that would inject a header", token("a\r\nx-injected: 1"), "without a usable access_token"],
    [
      "a token of another type",
      token("abc", { token_type: "mac" }),
      'gave a token of type "mac"; only Bearer can be sent',
    ],
    ["an endless answer", { status: 200, body: "x".repeat(100_000) }, "more than 64 KiB"],
    ["a broken connection", "drop", "failed: connection_lost"],
  ])("because of %s fails the publish", async (_what, answer, reason) => {
    issuer.answer = answer;
    const error = await create().failure();
    expect(error.code).toBe("token");
    expect(error.message).toContain(`the token request to ${issuer.url}/oauth/token `);
    expect(error.message).toContain(reason);
    expect(receiver.requests).toEqual([]);
    expect(issuer.requests).toHaveLength(1);
  });

  test("because nobody listens fails the publish, and is asked for again by the next", async () => {
    await issuer.close();
    const { failure, publish } = create();
    const error = await failure();
    expect(error).toMatchObject({ code: "token", message: expect.stringContaining("connection_refused") });
    await issuer.listen();
    issuer.answer = token("t1");
    await publish();
  });

  test("is waited for as long as the receiver of the token asks", async () => {
    issuer.answer = { status: 503, headers: { "retry-after": "3" } };
    expect((await create().failure()).retryAfterMs).toBe(3000);
  });

  test("in time fails the publish when its time is over", async () => {
    await using blackHole = await startBlackHole();
    const { failure } = create({ tokenUrl: `http://127.0.0.1:${blackHole.port}/token` }, {}, 80);
    const error = await failure();
    expect(["token", "timeout"]).toContain(error.code);
    expect(error.message).toMatch(/waiting for a token|was not answered within 80 ms/);
  });

  test("because its address is private fails the publish", async () => {
    const lookup: HttpDestinationEnvironment["lookup"] = (_host, _options, callback) =>
      callback(null, [{ address: "10.0.0.1", family: 4 }]);
    const { failure } = create({ tokenUrl: "http://issuer.example/token" }, { blockPrivateAddresses: true, lookup });
    const error = await failure();
    expect(error.code).toBe("private_address");
    expect(issuer.requests).toEqual([]);
  });
});

test("neither the client secret nor the token shows in any error", async () => {
  const echo = `${CLIENT_SECRET} ${encodeURIComponent(CLIENT_SECRET)} Bearer tok-0123456789 tok-0123456789`;
  issuer.answerNext(
    { status: 500, body: echo },
    { status: 200, body: echo },
    token("tok-0123456789"),
    token("tok-0123456789"),
  );
  receiver.answer = { status: 401, body: echo };
  const { failure } = create();
  for (let n = 0; n < 3; n++) {
    const text = errorText(await failure());
    expect(text).not.toContain(CLIENT_SECRET);
    expect(text).not.toContain("tok-0123456789");
  }
});
