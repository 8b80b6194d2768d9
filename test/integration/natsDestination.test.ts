import { inspect } from "node:util";
import { afterEach, beforeEach, describe, expect, test } from "@jest/globals";
import type { JetStreamManager } from "nats";
import { Secret } from "../../src/model/secret.ts";
import { message } from "../conformance/destination/bench.ts";
import { startBlackHole } from "../support/blackHole.ts";
import { describeWith, sharedNats, startNats } from "../support/brokers/index.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { freePort } from "../support/ports.ts";
import { failure, NatsBench, noSignal, publish, uniqueStream } from "./natsSetup.ts";

let bench: NatsBench;

beforeEach(() => {
  bench = new NatsBench();
});
afterEach(() => bench.close());
failOnLeaks();

describeWith(["nats"], "the NATS destination", () => {
  describe("with JetStream", () => {
    let url: string;
    let manager: JetStreamManager;

    beforeEach(async () => {
      url = (await sharedNats()).url;
      manager = await bench.manager(url);
    });

    test("counts a message that the stream has already as delivered, and the stream stores it once", async () => {
      const { stream, subject, subjects } = uniqueStream();
      await manager.streams.add({ name: stream, subjects });
      const destination = bench.destination({ servers: url });
      const twice = { ...message(), address: subject };
      await destination.publish(twice, noSignal());
      await destination.publish(twice, noSignal());
      expect((await manager.streams.info(stream)).state.messages).toBe(1);
      await manager.streams.delete(stream);
    });

    test("fails for a subject that no stream takes, names it and says what to create; others are delivered", async () => {
      const { stream, subject, subjects } = uniqueStream();
      await manager.streams.add({ name: stream, subjects });
      const destination = bench.destination({ servers: url });
      const [homeless] = await Promise.all([
        failure(publish(destination, `nowhere.${subject}`)),
        publish(destination, subject),
      ]);
      expect(homeless).toMatchObject({ code: "no_stream" });
      expect(homeless.message).toContain(`nowhere.${subject}: create a stream`);
      await manager.streams.delete(stream);
    });

    test("says what a stream refused: full, sealed, message too large for it", async () => {
      const streams = [uniqueStream(), uniqueStream(), uniqueStream()];
      const [full, sealed, small] = streams.map(({ stream }) => stream);
      const limits = [{ max_msgs: 1, discard: "new" }, {}, { max_msg_size: 200 }];
      for (const [index, { stream, subjects }] of streams.entries())
        await manager.streams.add({ name: stream, subjects, ...limits[index] } as never);
      const destination = bench.destination({ servers: url });
      await publish(destination, `${full}.1`);
      await publish(destination, `${sealed}.1`);
      await manager.streams.update(sealed ?? "", { sealed: true } as never);

      const large = { body: JSON.stringify("x".repeat(300)) };
      const errors = await Promise.all([
        failure(publish(destination, `${full}.2`)),
        failure(publish(destination, `${sealed}.2`)),
        failure(publish(destination, `${small}.1`, large)),
      ]);
      expect(errors.map(({ code }) => code)).toEqual(["rejected", "rejected", "rejected"]);
      expect(errors[0]?.message).toMatch(/maximum messages exceeded/);
      expect(errors[1]?.message).toMatch(/sealed/);
      expect(errors[2]?.message).toMatch(/message size exceeds maximum/);
      for (const [index, { stream }] of streams.entries()) expect(errors[index]?.message).toContain(stream);
      for (const { stream } of streams) await manager.streams.delete(stream);
    });

    test("does not take an answer of anything else for the acknowledgement of a stream", async () => {
      const { subject } = uniqueStream();
      const responder = await bench.client(url);
      const answers = [
        "",
        "{}",
        '{"stream":""}',
        "[1]",
        "no JSON",
        "null",
        '{"stream":7}',
        '{"stream":{"toString":1}}',
      ];
      responder.subscribe(`${subject}.*`, {
        callback: (_, request) => request.respond(answers[Number(request.subject.split(".").at(-1))] ?? ""),
      });
      await responder.flush();
      const destination = bench.destination({ servers: url });
      const errors = await Promise.all(answers.map((_, index) => failure(publish(destination, `${subject}.${index}`))));
      expect(errors.map(({ code }) => code)).toEqual(answers.map(() => "bad_acknowledgement"));
    });

    test("survives an answer whose headers the client cannot read", async () => {
      const { stream, subject, subjects } = uniqueStream();
      await manager.streams.add({ name: stream, subjects });
      const responder = await bench.client(url);
      // Written past the client, which refuses such a name.
      const encode = () => Buffer.from("NATS/1.0\r\nna me: x\r\n\r\n");
      responder.subscribe(`odd.${subject}`, {
        callback: (_, request) => request.respond("", { headers: { encode } as never }),
      });
      await responder.flush();
      const destination = bench.destination({ servers: url });
      expect(await failure(publish(destination, `odd.${subject}`))).toMatchObject({ code: "bad_acknowledgement" });
      await publish(destination, subject);
      await manager.streams.delete(stream);
    });

    test("delivers header values of every script, and none of the sender's instructions to the stream", async () => {
      const { stream, subject, subjects } = uniqueStream();
      await manager.streams.add({ name: stream, subjects, allow_rollup_hdrs: true });
      const destination = bench.destination({ servers: url });
      await publish(destination, subject);
      const headers = {
        "x-city": "Zürich, 東京 👩‍👩‍👧",
        "X-Empty": "",
        "nats-msg-id": "of the sender",
        "Nats-Rollup": "all",
        "Nats-Expected-Stream": "ANOTHER",
      };
      const sent = { ...message({ headers }), address: subject };
      await destination.publish(sent, noSignal());
      expect((await manager.streams.info(stream)).state.messages).toBe(2);
      const { header } = await manager.streams.getMessage(stream, { seq: 2 });
      expect(Object.fromEntries(header)).toEqual({
        "content-type": ["application/json"],
        "x-city": [headers["x-city"]],
        "X-Empty": [""],
        "x-message-id": [sent.id],
        "Nats-Msg-Id": [sent.id],
      });
      await manager.streams.delete(stream);
    });

    test("says when JetStream is off", async () => {
      await using server = await startNats({ jetStream: false });
      const error = await failure(publish(bench.destination({ servers: server.url }), "orders.created"));
      expect(error).toMatchObject({ code: "no_stream", message: expect.stringMatching(/enable JetStream/) });
    });
  });

  describe.each([true, false])("with jetStream %s", (jetStream) => {
    test("refuses a message larger than the server takes, headers included, and keeps the connection", async () => {
      await using server = await startNats({ maxPayload: 1000 });
      const manager = await bench.manager(server.url);
      await manager.streams.add({ name: "ORDERS", subjects: ["orders.>"] });
      const destination = bench.destination({ servers: server.url, jetStream });
      const body = JSON.stringify("x".repeat(900));
      const errors = await Promise.all([
        failure(publish(destination, "orders.1", { body })),
        failure(publish(destination, "orders.2", { body: JSON.stringify("x".repeat(2000)) })),
        publish(destination, "orders.3").then(() => undefined),
      ]);
      expect(errors[0]).toMatchObject({
        code: "too_large",
        message: expect.stringMatching(/1000 at most \(max_payload\)/),
      });
      expect(errors[1]).toMatchObject({ code: "too_large" });
      await eventually(async () => expect((await manager.streams.info("ORDERS")).state.messages).toBe(1));
      expect(bench.lines.map(({ message }) => message)).toEqual(["connected to the broker"]);
    });

    test("sends a header that the wire cannot hold encoded", async () => {
      const { url } = await sharedNats();
      const manager = await bench.manager(url);
      const { stream, subject, subjects } = uniqueStream();
      await manager.streams.add({ name: stream, subjects });
      const headers = {
        "x-note": "first line\r\nNats-Rollup: all",
        "x note": "1",
        größe: "2",
        "x-idempotency-key": " k",
      };
      await publish(bench.destination({ servers: url, jetStream }), subject, { headers });
      await eventually(async () => expect((await manager.streams.info(stream)).state.messages).toBe(1));
      const { header } = await manager.streams.getMessage(stream, { seq: 1 });
      expect(header.get("x-note")).toBe("UTF-8''first%20line%0D%0ANats-Rollup%3A%20all");
      expect(header.get("x%20note")).toBe("1");
      expect(header.get("gr%C3%B6%C3%9Fe")).toBe("2");
      expect(header.get("x-idempotency-key")).toBe("UTF-8''%20k");
      await manager.streams.delete(stream);
    });
  });

  describe("connecting", () => {
    const PASSWORD = "p@ss:w/rd-right";
    const WRONG = "p@ss-wrong";

    test.each([
      [
        "user name and password",
        { user: "svc", password: PASSWORD },
        { username: "svc", password: new Secret(PASSWORD) },
        "",
      ],
      ["a token", { token: PASSWORD }, { token: new Secret(PASSWORD) }, ""],
      [
        "user name and password in the URL",
        { user: "svc", password: PASSWORD },
        {},
        `svc:${encodeURIComponent(PASSWORD)}@`,
      ],
      ["user name and password in the URL, not encoded", { user: "svc", password: PASSWORD }, {}, `svc:${PASSWORD}@`],
      ["a token in the URL", { token: PASSWORD }, {}, `${encodeURIComponent(PASSWORD)}@`],
    ])("logs in with %s", async (_what, required, login, userInfo) => {
      await using server = await startNats({ ...required, jetStream: false });
      const servers = `nats://${userInfo}127.0.0.1:${server.port}`;
      await publish(bench.destination({ servers, ...login, jetStream: false }), "orders");
    });

    test.each([
      ["in its key", { username: "svc", password: new Secret(WRONG) }, ""],
      ["in the URL", {}, `svc:${WRONG}@`],
      ["as a token in the URL", {}, `${WRONG}@`],
      ["as a token", { token: new Secret(WRONG) }, ""],
    ])("says that the login is refused, and shows a wrong password %s nowhere", async (_what, login, userInfo) => {
      await using server = await startNats({ user: "svc", password: PASSWORD, jetStream: false });
      const servers = `nats://${userInfo}127.0.0.1:${server.port}`;
      const destination = bench.destination({ servers, ...login });
      const errors = [await failure(publish(destination, "orders")), await failure(publish(destination, "orders"))];
      expect(errors.map(({ code }) => code)).toEqual(["authentication", "authentication"]);
      expect(errors[0]?.message).toMatch(/127\.0\.0\.1:\d+ refused the login .*check username and password/);
      const shown = inspect({ errors, lines: bench.lines }, { depth: 10, showHidden: true, maxStringLength: null });
      expect(bench.lines).not.toEqual([]);
      expect(shown.includes(WRONG)).toBe(false);
    });

    test("says that the server offers no TLS when the URL asks for it", async () => {
      const { host, port } = await sharedNats();
      const error = await failure(publish(bench.destination({ servers: `tls://${host}:${port}` }), "orders"));
      expect(error).toMatchObject({ code: "tls", message: expect.stringMatching(/does not offer TLS/) });
    });

    test("names each server that cannot be reached, and passes over them to a server that answers", async () => {
      const blackHole = await startBlackHole();
      const { port } = await sharedNats();
      const nobody = await freePort();
      const [silent, refusing] = [`127.0.0.1:${blackHole.port}`, `127.0.0.1:${nobody}`];
      const away = bench.destination({ servers: `${silent},${refusing}`, timeoutMs: 300 });
      await eventually(async () => {
        const { message } = await failure(publish(away, "orders"));
        expect(message).toContain(`${silent} did not answer within 300 ms`);
        expect(message).toContain(`${refusing} refused the connection`);
      });
      const some = bench.destination({
        servers: `${silent}, ${refusing}, 127.0.0.1:${port}`,
        jetStream: false,
        timeoutMs: 300,
      });
      await eventually(() => publish(some, "orders"));
      await blackHole.close();
    });

    test("lets a publish that waited too long for a connection never reach the server", async () => {
      const blackHole = await startBlackHole();
      const { url, port } = await sharedNats();
      const { subject } = uniqueStream();
      const listener = await bench.client(url);
      const heard: string[] = [];
      listener.subscribe(subject, { callback: (_, { data }) => void heard.push(Buffer.from(data).toString()) });
      await listener.flush();
      // The silent server comes first in each attempt.
      const servers = `127.0.0.1:${blackHole.port},127.0.0.1:${port}`;
      let place = 0;
      const destination = bench.destination({ servers, jetStream: false, timeoutMs: 300 }, () => (place++ % 2) / 2);
      expect(await failure(publish(destination, subject, { body: "1" }))).toMatchObject({ code: "timeout" });
      await eventually(() => publish(destination, subject, { body: "2" }));
      await listener.flush();
      expect(heard).toEqual(["2"]);
      await blackHole.close();
    });
  });
});
