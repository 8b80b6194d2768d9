import { describe, expect, test } from "@jest/globals";
import { faultCode, faultOf, RabbitmqFault, reasonOf } from "../../../../../src/adapters/brokers/rabbitmq/fault.ts";

const error = (message: string, code?: string | number) => Object.assign(new Error(message), { code });

describe("a fault of RabbitMQ", () => {
  test.each([
    [error("connect", "ECONNREFUSED"), "connection_refused"],
    [error("read", "ECONNRESET"), "connection_lost"],
    [error("getaddrinfo", "ENOTFOUND"), "dns"],
    [error("getaddrinfo", "EAI_AGAIN"), "dns"],
    [error("connect", "EHOSTUNREACH"), "unreachable"],
    [error("connect", "ETIMEDOUT"), "timeout"],
    [error("self-signed certificate", "DEPTH_ZERO_SELF_SIGNED_CERT"), "tls"],
    [error("altnames", "ERR_TLS_CERT_ALTNAME_INVALID"), "tls"],
    [error("wrong version number", "EPROTO"), "tls"],
    [error("Connection closed: 320", 320), "connection_lost"],
    [error("Channel closed", 403), "access_refused"],
    [error("Channel closed", 404), "not_found"],
    [error("Channel closed", 405), "locked"],
    [error("Channel closed", 406), "precondition_failed"],
    [error("Connection closed", 501), "protocol"],
    [error("Connection closed", 541), "other"],
    [error("Heartbeat timeout"), "connection_lost"],
    [error("Frame size 1213486160 exceeds maxFrameSize 67108864"), "protocol"],
    [error("something new"), "other"],
    ["no error at all", "other"],
    [undefined, "other"],
  ])("%s is of the kind %s", (thrown, code) => {
    expect(faultCode(thrown)).toBe(code);
  });

  test("says what RabbitMQ said, and not what the library puts around it", () => {
    const thrown = error(
      `Operation failed: QueueDeclare; 404 (NOT-FOUND) with message "NOT_FOUND - no queue 'a "b"' in vhost '/'"`,
      404,
    );
    expect(reasonOf(thrown)).toBe(`NOT_FOUND - no queue 'a "b"' in vhost '/'`);
    expect(faultOf("the queue", thrown)).toMatchObject({
      code: "not_found",
      message: `the queue: NOT_FOUND - no queue 'a "b"' in vhost '/'`,
    });
  });

  test("keeps its own words when it is one already", () => {
    const fault = new RabbitmqFault("closed", "the connection was closed");
    expect(faultOf("publishing", fault)).toBe(fault);
  });
});
