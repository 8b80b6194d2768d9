import { describe, expect, jest, test } from "@jest/globals";
import {
  compileAddress,
  messageFields,
  parseAddressTemplate,
  parseRecordKeyTemplate,
  parseRoutingKeyTemplate,
  renderRoutingKey,
} from "../../../../src/core/delivery/template.ts";
import { PublishError } from "../../../../src/model/errors.ts";
import type { AddressColumn } from "../../../../src/ports/kinds.ts";

const fields = (overrides: Partial<Parameters<typeof messageFields>[0]> = {}) =>
  messageFields({ topic: "orders.created", key: "k1", aggregateType: "order", payload: "{}", ...overrides });

describe("an address template", () => {
  test.each([
    ["{{ topic }}/{{key}}/{{ aggregateType }}", "orders.created/k1/order"],
    ["x.{{ payload.id }}", "x.a"],
    ["x.{{ data.id }}", "x.a"],
    ["{{ payload.customer.name }}", "Ada"],
    ["{{ payload.flag }}", "true"],
    ["{{ payload.big }}", "12345678901234567890"],
    ["{{ payload.exact }}", "1.0"],
    ["{{ payload.customer }}", '{"name":"Ada","n":1.50}'],
    ["{{ payload.list }}", "[1,10000000000000000001]"],
    ["{{ payload.none }}", ""],
    ["{{ payload.missing }}", ""],
    ["{{ payload.id.length }}", ""],
    ["{{ payload.list.length }}", ""],
    ["{{ payload.list.0 }}", ""],
    ["{{ payload.constructor }}", ""],
    ["{{ payload.empty }}", ""],
  ])("%s renders %j", (text, address) => {
    const payload =
      '{"id":"a","customer":{"name":"Ada","n":1.50},"flag":true,"big":12345678901234567890,"exact":1.0,' +
      '"list":[1,10000000000000000001],"none":null,"empty":""}';
    expect(parseAddressTemplate(text).render(fields({ payload }))).toBe(address);
  });

  test("renders headers of the row, in any letter case, and an absent one as nothing", () => {
    const template = parseAddressTemplate("a.{{ headers.X-Nats-Subject }}.{{ headers.x.y }}.{{ headers.none }}");
    const headers = { "x-nats-subject": "lamps.1", "X.Y": "b" };
    expect(template.render(fields({ headers }))).toBe("a.lamps.1.b.");
    expect(template.render(fields())).toBe("a...");
  });

  test.each([
    "{{ id }}",
    "{{ payload }}",
    "{{ payload. }}",
    "{{ payload..a }}",
    "{{ data }}",
    "{{ toString }}",
    "{{ headers }}",
    "{{ headers. }}",
    "{{}}",
  ])("%s is refused, with the permitted placeholders", (text) => {
    expect(() => parseAddressTemplate(text)).toThrow(
      /unknown placeholder .* permitted are \{\{ topic \}\}, \{\{ key \}\}, \{\{ aggregateType \}\}, \{\{ headers\.<name> \}\}, \{\{ payload\.<field> \}\} and \{\{ data\.<field> \}\}/,
    );
  });

  test("takes the last of two members with one name", () => {
    expect(parseAddressTemplate("{{ payload.a }}").render(fields({ payload: '{"a":1,"a":2}' }))).toBe("2");
  });

  test("renders a number of a payload that is nested deeper than a recursive parser can go", () => {
    const payload = `{"id":5,"deep":${"[".repeat(100_000)}${"]".repeat(100_000)}}`;
    expect(parseAddressTemplate("{{ payload.id }}").render(fields({ payload }))).toBe("5");
  });
});

describe("the payload of a message", () => {
  test("is parsed once, and only when a placeholder asks for it", () => {
    const parse = jest.spyOn(JSON, "parse");
    try {
      const message = fields({ payload: '{"a":"x","b":"y"}' });
      parseAddressTemplate("{{ topic }}{{ key }}").render(message);
      expect(parse).not.toHaveBeenCalled();
      parseAddressTemplate("{{ payload.a }}{{ data.b }}").render(message);
      parseRoutingKeyTemplate("{{ payload.b }}").render(message);
      expect(parse).toHaveBeenCalledTimes(1);
    } finally {
      parse.mockRestore();
    }
  });
});

const orderFields = messageFields({ topic: "{{ key }}.t", key: null, aggregateType: "order", payload: '{"id":"x"}' });

describe("an address", () => {
  test("is rendered from its template", () => {
    const address = compileAddress({ name: "exchange", template: "ex.{{ payload.id }}", from: undefined });
    expect(address.render(orderFields)).toBe("ex.x");
  });

  test("is taken unchanged from a column, which wins over the template", () => {
    const from = (column: AddressColumn) =>
      compileAddress({ name: "topic", template: "other", from: column }).render(orderFields);
    expect(from("topic")).toBe("{{ key }}.t");
    expect(from("aggregate_type")).toBe("order");
  });

  test.each<[{ template: string; from: AddressColumn | undefined }, string]>([
    [{ template: "{{ key }} ", from: undefined }, 'the template "{{ key }} " gave no text'],
    [{ template: "x", from: "key" }, "the column key gave no text"],
  ])("that is empty fails the publish: %j", (config, reason) => {
    const address = compileAddress({ name: "subject", ...config });
    expect(() => address.render(orderFields)).toThrow(PublishError);
    expect(() => address.render(orderFields)).toThrow(`the subject is empty: ${reason} for this row`);
  });

  test("with an unknown placeholder is refused", () => {
    expect(() => compileAddress({ name: "topic", template: "{{ id }}", from: undefined })).toThrow("{{ id }}");
  });
});

describe("a routing key", () => {
  const noRoute = { routingKey: null, routingKeyMissing: "-" };
  const own = { template: parseRoutingKeyTemplate("{{ key }}/{{ payload.id }}"), emptyMeansNone: false };

  test("is rendered from the destination's template, with the route's default for what is missing", () => {
    expect(renderRoutingKey(own, noRoute, orderFields)).toBe("-/x");
  });

  test("is rendered from the route's template, which wins", () => {
    const route = { routingKey: parseRoutingKeyTemplate("r.{{ nothing }}"), routingKeyMissing: "0" };
    expect(renderRoutingKey(own, route, orderFields)).toBe("r.0");
  });

  test("that is empty is a key for AMQP and none for Kafka", () => {
    const template = parseRecordKeyTemplate("{{ key }}");
    const route = { routingKey: null, routingKeyMissing: "" };
    expect(renderRoutingKey({ template, emptyMeansNone: false }, route, orderFields)).toBe("");
    expect(renderRoutingKey({ template, emptyMeansNone: true }, route, orderFields)).toBeNull();
  });

  test("does not exist for a kind without one", () => {
    expect(renderRoutingKey(null, { ...noRoute, routingKey: parseRoutingKeyTemplate("x") }, orderFields)).toBeNull();
  });
});
