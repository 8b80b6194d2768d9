import { once } from "node:events";
import { describe, expect, test } from "@jest/globals";
import type { Receiver } from "../../../../support/receiver.ts";
import { withReceiver } from "./setup.ts";

let receiver: Receiver;
const destinations = withReceiver((started) => {
  receiver = started;
});

describe("addresses", () => {
  test("that are private are refused at the connect: literal ones", async () => {
    const { failure } = destinations.create({ baseUrl: receiver.url }, { blockPrivateAddresses: true });
    const error = await failure();
    expect(error.code).toBe("private_address");
    expect(error.message).toContain("127.0.0.1 is a private address (loopback)");
    expect(receiver.connections).toBe(0);
  });

  test("that are private are refused at the connect: names whose answer has changed since the start", async () => {
    let answers = ["203.0.113.1"];
    const { failure } = destinations.create(
      { baseUrl: `http://rebound.example:${receiver.port}` },
      {
        blockPrivateAddresses: true,
        lookup: (_host, _options, callback) =>
          callback(
            null,
            answers.map((address) => ({ address, family: 4 })),
          ),
      },
    );
    answers = ["127.0.0.1"];
    expect(await failure()).toMatchObject({
      code: "private_address",
      message: expect.stringContaining("rebound.example"),
    });
    expect(receiver.connections).toBe(0);
  });

  test("of cloud metadata are refused without the block too", async () => {
    const { failure } = destinations.create(
      { baseUrl: "http://metadata.example" },
      { lookup: (_host, _options, callback) => callback(null, [{ address: "169.254.169.254", family: 4 }]) },
    );
    expect((await failure()).message).toContain("cloud metadata address");
  });

  test("that are permitted are connected to by name", async () => {
    const { publish } = destinations.create(
      { baseUrl: `http://shop.example:${receiver.port}` },
      { lookup: (_host, _options, callback) => callback(null, [{ address: "127.0.0.1", family: 4 }]) },
    );
    await publish();
    const [request] = await receiver.received(1);
    expect(request?.headers.host).toBe(`shop.example:${receiver.port}`);
  });
});

test("connections are bounded, and further publishes wait for one", async () => {
  const { publish } = destinations.create({ baseUrl: receiver.url }, { connections: 3 });
  await Promise.all(Array.from({ length: 30 }, () => publish()));
  expect(receiver.requests).toHaveLength(30);
  expect(receiver.connections).toBeLessThanOrEqual(3);
});

test("a receiver that closes idle connections costs no publish", async () => {
  const { publish } = destinations.create({ baseUrl: receiver.url }, { connections: 1 });
  for (let n = 0; n < 5; n++) {
    let closed: Promise<unknown> = Promise.resolve();
    receiver.answerNext((_request, response) => {
      const { socket } = response;
      if (socket !== null) closed = once(socket, "close");
      response.end(() => socket?.end());
    });
    await publish();
    await closed;
  }
  expect(receiver.connections).toBe(5);
});
