import { describe, expect, test } from "@jest/globals";
import { compileAddress, renderRoutingKey } from "../../../../src/core/delivery/address.ts";
import {
  messageFields,
  parseRecordKeyTemplate,
  parseRoutingKeyTemplate,
} from "../../../../src/core/delivery/template.ts";
import { PublishError } from "../../../../src/model/errors.ts";

const fields = messageFields({ topic: "{{ key }}.t", key: null, aggregateType: "order", payload: '{"id":"x"}' });

describe("an address", () => {
  test("is rendered from its template", () => {
    const address = compileAddress({ name: "exchange", template: "ex.{{ payload.id }}", from: undefined });
    expect(address.render(fields)).toBe("ex.x");
  });

  test("is taken from a column as it is, which wins over the template", () => {
    const from = (column: string) => compileAddress({ name: "topic", template: "other", from: column }).render(fields);
    expect(from("topic")).toBe("{{ key }}.t");
    expect(from("aggregate_type")).toBe("order");
  });

  test.each([
    [{ template: "{{ key }} ", from: undefined }, 'the template "{{ key }} " gave no text'],
    [{ template: "x", from: "key" }, "the column key gave no text"],
  ])("that is empty fails the publish: %j", (config, reason) => {
    const address = compileAddress({ name: "subject", ...config });
    expect(() => address.render(fields)).toThrow(PublishError);
    expect(() => address.render(fields)).toThrow(`the subject is empty: ${reason} for this row`);
  });

  test("with an unknown column is refused, with the permitted ones", () => {
    for (const from of ["aggregateType", "payload", "toString", ""]) {
      expect(() => compileAddress({ name: "topic", template: "x", from })).toThrow(
        `unknown column "${from}"; permitted are aggregate_type, topic, key`,
      );
    }
  });

  test("with an unknown placeholder is refused", () => {
    expect(() => compileAddress({ name: "topic", template: "{{ id }}", from: undefined })).toThrow("{{ id }}");
  });
});

describe("a routing key", () => {
  const noRoute = { routingKey: null, routingKeyMissing: "-" };
  const own = { template: parseRoutingKeyTemplate("{{ key }}/{{ payload.id }}"), emptyMeansNone: false };

  test("is rendered from the destination's template, with the route's default for what is missing", () => {
    expect(renderRoutingKey(own, noRoute, fields)).toBe("-/x");
  });

  test("is rendered from the route's template, which wins", () => {
    const route = { routingKey: parseRoutingKeyTemplate("r.{{ nothing }}"), routingKeyMissing: "0" };
    expect(renderRoutingKey(own, route, fields)).toBe("r.0");
  });

  test("that is empty is a key for AMQP and none for a log broker", () => {
    const template = parseRecordKeyTemplate("{{ key }}");
    const route = { routingKey: null, routingKeyMissing: "" };
    expect(renderRoutingKey({ template, emptyMeansNone: false }, route, fields)).toBe("");
    expect(renderRoutingKey({ template, emptyMeansNone: true }, route, fields)).toBeNull();
  });

  test("does not exist for a kind without one", () => {
    expect(renderRoutingKey(null, { ...noRoute, routingKey: parseRoutingKeyTemplate("x") }, fields)).toBeNull();
  });
});
