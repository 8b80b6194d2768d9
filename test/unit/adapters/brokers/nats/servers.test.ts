import { describe, expect, test } from "@jest/globals";
import { NatsServers } from "../../../../../src/adapters/brokers/nats/link.ts";
import { seeded } from "../../../../support/random.ts";

const parsed = (text: string) => new NatsServers(text, () => 0).inTurn();

describe("the list of NATS servers", () => {
  test.each([
    ["nats://a:4222", [{ address: "a:4222", tls: false, login: undefined }]],
    ["a", [{ address: "a:4222", tls: false, login: undefined }]],
    ["TLS://a.example.com:1/", [{ address: "a.example.com:1", tls: true, login: undefined }]],
    ["[::1]:4223", [{ address: "[::1]:4223", tls: false, login: undefined }]],
    ["nats://u:p@a", [{ address: "a:4222", tls: false, login: { user: "u", pass: "p" } }]],
    ["nats://u:p%40%2C%25@a", [{ address: "a:4222", tls: false, login: { user: "u", pass: "p@,%" } }]],
    ["nats://u:p@:/%@a:5", [{ address: "a:5", tls: false, login: { user: "u", pass: "p@:/%" } }]],
    ["nats://tok%20en@a", [{ address: "a:4222", tls: false, login: { token: "tok en" } }]],
    ["u:@a", [{ address: "a:4222", tls: false, login: { user: "u", pass: "" } }]],
    [
      " nats://a:1 ,, b:2 ",
      [
        { address: "a:1", tls: false, login: undefined },
        { address: "b:2", tls: false, login: undefined },
      ],
    ],
  ])("reads %s", (text, servers) => {
    expect(parsed(text)).toEqual(servers);
  });

  test.each([
    "",
    " , ",
    "http://a",
    "nats://",
    "nats://a:0",
    "nats://a:65536",
    "a b",
    "nats://u:pass word@",
    "a:b",
    "a/b",
  ])("refuses %p and repeats nothing of it", (text) => {
    expect(() => parsed(text)).toThrow(
      /^servers: (the list is empty|entry 1 is not a server URL); expected nats:\/\/host:port/,
    );
    expect(() => parsed(text)).not.toThrow(/pass/);
  });

  test("names the place of the entry that is wrong", () => {
    expect(() => parsed("a,b,c:x")).toThrow(/entry 3/);
  });

  test("shows addresses without credentials", () => {
    expect(new NatsServers("nats://u:p@a, tls://token@b:7", () => 0).text).toBe("a:4222, b:7");
  });

  test("goes through the servers in any order, those learned from a server last and with its scheme and login", () => {
    const servers = new NatsServers("tls://u:p@a,tls://b", seeded(1));
    const from = servers.inTurn().find(({ address }) => address === "a:4222");
    if (from === undefined) throw new Error("a is not in the list");
    servers.setAnnounced(["c:1", "b:4222"], from);
    const orders = Array.from({ length: 50 }, () => servers.inTurn());
    const firsts = new Set(orders.map(([first]) => first?.address));
    expect(firsts).toEqual(new Set(["a:4222", "b:4222"]));
    for (const order of orders) {
      expect(order).toHaveLength(3);
      expect(order[2]).toEqual({ address: "c:1", tls: true, login: { user: "u", pass: "p" } });
    }
    servers.setAnnounced([], from);
    expect(servers.inTurn()).toHaveLength(2);
  });
});
