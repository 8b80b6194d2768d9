import { describe, expect, test } from "@jest/globals";
import { brokerAddresses, hostOf } from "../../../../../src/adapters/brokers/kafka/client.ts";

describe("bootstrap servers", () => {
  test.each([
    ["kafka-1:9092,kafka-2:9093", ["kafka-1", "9092"], ["kafka-2", "9093"]],
    [" kafka-1 , kafka-2:19092 ,", ["kafka-1", "9092"], ["kafka-2", "19092"]],
    ["[2001:db8::1]:9093", ["2001:db8::1", "9093"]],
    ["[::1]", ["::1", "9092"]],
    ["under_score:9092", ["under_score", "9092"]],
  ])("of %j are connected to at their hosts and ports", (text, ...expected) => {
    // The client cuts an address apart at its first colon.
    const targets = brokerAddresses(text).map((address) => {
      const [host = "", port] = address.split(":");
      return [hostOf(host), port];
    });
    expect(targets).toEqual(expected);
  });

  test("that a broker announces as IPv6 addresses stay unchanged", () => {
    expect(hostOf("2001:db8::1")).toBe("2001:db8::1");
  });
});
