import { describe, expect, test } from "@jest/globals";
import { KafkaJSConnectionError, KafkaJSNumberOfRetriesExceeded } from "kafkajs";
import { kafkaFault } from "../../../../../src/adapters/brokers/kafka/faults.ts";

describe("a fault of Kafka's client", () => {
  test("is the cause at the end, not the retries around it", () => {
    const refused = new KafkaJSConnectionError("Connection error: connect ECONNREFUSED", { code: "ECONNREFUSED" });
    const wrapped = new KafkaJSNumberOfRetriesExceeded(refused, { retryCount: 2, retryTime: 100 });
    expect(kafkaFault(wrapped)).toEqual({
      code: "connection_refused",
      text: "Connection error: connect ECONNREFUSED",
    });
  });

  test.each([
    [{ type: "UNKNOWN_TOPIC_OR_PARTITION" }, "topic_missing"],
    [{ type: "OUT_OF_ORDER_SEQUENCE_NUMBER" }, "producer_state"],
    [{ type: "SOMETHING_NEW" }, "other"],
    [{ name: "KafkaJSSASLAuthenticationError" }, "authentication"],
    [{ name: "KafkaJSRequestTimeoutError" }, "timeout"],
    [{ name: "KafkaJSConnectionError", code: "ENOTFOUND" }, "dns"],
    [{ name: "KafkaJSConnectionError", code: "SELF_SIGNED_CERT_IN_CHAIN" }, "tls"],
    [{ name: "TypeError" }, "other"],
  ])("%j has the code %s", (fields, code) => {
    expect(kafkaFault(Object.assign(new Error("it failed"), fields)).code).toBe(code);
  });

  test("ends a chain of causes that is a circle", () => {
    const error = new Error("round");
    error.cause = error;
    expect(kafkaFault(error).code).toBe("other");
  });
});
