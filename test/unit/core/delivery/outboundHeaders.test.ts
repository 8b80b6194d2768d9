import { describe, expect, test } from "@jest/globals";
import { compileHeaderValue, compileOutboundHeaders, messageFields } from "../../../../src/core/delivery/template.ts";
import { splitAttributes } from "../../../../src/model/cloudEvents.ts";
import type { DeliverableRow } from "../../../../src/model/rows.ts";
import { CLAIM, row } from "./deliverSetup.ts";

const { id: ID } = CLAIM;
const FIELDS = messageFields(row() as DeliverableRow);

describe("the headers of a delivery", () => {
  test("hold the message id and the content type of JSON", () => {
    expect(compileOutboundHeaders({})({}, ID, FIELDS)).toEqual({
      "content-type": "application/json",
      "x-message-id": ID,
    });
  });

  test("of the row win over static ones of the same name in any letter case", () => {
    const headers = compileOutboundHeaders({ "X-Tenant": "static", "X-Other": "kept" });
    expect(headers({ "x-tenant": "row", "X-Mine": "1" }, ID, FIELDS)).toEqual({
      "content-type": "application/json",
      "X-Other": "kept",
      "x-tenant": "row",
      "X-Mine": "1",
      "x-message-id": ID,
    });
  });

  test("keep the content type of the row, else the static one", () => {
    const headers = compileOutboundHeaders({ "Content-Type": "application/vnd.shop+json" });
    expect(headers({}, ID, FIELDS)).toEqual({ "Content-Type": "application/vnd.shop+json", "x-message-id": ID });
    expect(headers({ "CONTENT-TYPE": "text/plain" }, ID, FIELDS)).toEqual({
      "CONTENT-TYPE": "text/plain",
      "x-message-id": ID,
    });
  });

  test("never carry the message id of somebody else", () => {
    const headers = compileOutboundHeaders({ "X-Message-Id": "static" });
    expect(headers({ "X-MESSAGE-ID": "row" }, ID, FIELDS)).toEqual({
      "content-type": "application/json",
      "x-message-id": ID,
    });
  });

  test("hold a name once when the row has it in two spellings", () => {
    expect(compileOutboundHeaders({})({ "x-a": "1", "X-A": "2" }, ID, FIELDS)).toEqual({
      "content-type": "application/json",
      "X-A": "2",
      "x-message-id": ID,
    });
  });

  test("may be called as the prototype is", () => {
    const headers = compileOutboundHeaders({})(JSON.parse('{"__proto__":"p"}'), ID, FIELDS);
    expect(Object.entries(headers)).toContainEqual(["__proto__", "p"]);
    expect(Object.entries(splitAttributes(headers).headers)).toContainEqual(["__proto__", "p"]);
  });

  test("are rendered if they are templates, and left out without a value", () => {
    const headers = compileOutboundHeaders({
      "x-key": compileHeaderValue("key {{ key }}"),
      "x-id": compileHeaderValue("{{ payload.id }}"),
      "x-tenant": compileHeaderValue("{{ headers.tenant }}"),
      "x-fixed": compileHeaderValue("{ topic }}"),
    });
    expect(
      headers(
        { "X-Fixed": "row" },
        ID,
        messageFields(row({ key: null, headers: { tenant: "blue" } }) as DeliverableRow),
      ),
    ).toEqual({
      "content-type": "application/json",
      "x-id": "1.0",
      "x-tenant": "blue",
      "X-Fixed": "row",
      "x-message-id": ID,
    });
    expect(compileHeaderValue("{{ key }} of {{ nothing }}")).toBe("{{ key }} of {{ nothing }}");
  });

  test("of one delivery leave those of the next alone", () => {
    const headers = compileOutboundHeaders({ a: "1" });
    headers({ a: "2", b: "3" }, ID, FIELDS);
    expect(headers({}, ID, FIELDS)).toEqual({ "content-type": "application/json", a: "1", "x-message-id": ID });
  });
});
