import { describe, expect, test } from "@jest/globals";
import { compileOutboundHeaders } from "../../../../src/core/delivery/outboundHeaders.ts";
import type { MessageId } from "../../../../src/model/rows.ts";

const ID = "01980000-0000-7000-8000-000000000001" as MessageId;

describe("the headers of a delivery", () => {
  test("hold the message id and the content type of JSON", () => {
    expect(compileOutboundHeaders({})({}, ID)).toEqual({ "content-type": "application/json", "x-message-id": ID });
  });

  test("of the row win over static ones of the same name in any letter case", () => {
    const headers = compileOutboundHeaders({ "X-Tenant": "static", "X-Other": "kept" });
    expect(headers({ "x-tenant": "row", "X-Mine": "1" }, ID)).toEqual({
      "content-type": "application/json",
      "X-Other": "kept",
      "x-tenant": "row",
      "X-Mine": "1",
      "x-message-id": ID,
    });
  });

  test("keep the content type of the row, else the static one", () => {
    const headers = compileOutboundHeaders({ "Content-Type": "application/vnd.shop+json" });
    expect(headers({}, ID)).toEqual({ "Content-Type": "application/vnd.shop+json", "x-message-id": ID });
    expect(headers({ "CONTENT-TYPE": "text/plain" }, ID)).toEqual({ "CONTENT-TYPE": "text/plain", "x-message-id": ID });
  });

  test("never carry the message id of somebody else", () => {
    const headers = compileOutboundHeaders({ "X-Message-Id": "static" });
    expect(headers({ "X-MESSAGE-ID": "row" }, ID)).toEqual({ "content-type": "application/json", "x-message-id": ID });
  });

  test("hold a name once when the row has it in two spellings", () => {
    expect(compileOutboundHeaders({})({ "x-a": "1", "X-A": "2" }, ID)).toEqual({
      "content-type": "application/json",
      "X-A": "2",
      "x-message-id": ID,
    });
  });

  test("of one delivery leave those of the next alone", () => {
    const headers = compileOutboundHeaders({ a: "1" });
    headers({ a: "2", b: "3" }, ID);
    expect(headers({}, ID)).toEqual({ "content-type": "application/json", a: "1", "x-message-id": ID });
  });
});
