import { expect, test } from "@jest/globals";
import { parseJsonPath } from "../../../../src/core/receipt/jsonPath.ts";
import { hidePayload, operatorView } from "../../../../src/core/redaction/hidePayload.ts";
import { KnownSecrets } from "../../../../src/core/redaction/redact.ts";

const hidden = (payload: string | null, ...paths: readonly string[]) => hidePayload(payload, paths.map(parseJsonPath));

test("fields are hidden wherever their path leads, an index to every item", () => {
  const payload = JSON.stringify({ a: { b: "secret", c: 1 }, list: [{ n: "one" }, { n: "two" }, 3], keep: "kept" });
  expect(JSON.parse(hidden(payload, "$.a.b", "$.list[1].n", "$.none").text ?? "")).toEqual({
    a: { b: "***", c: 1 },
    list: [{ n: "***" }, { n: "***" }, 3],
    keep: "kept",
  });
  expect(hidden(payload, "$").text).toBe('"***"');
  expect(hidden("[[1],[2]]", "$[0][0]").text).toBe('[["***"],["***"]]');
});

test("their values are masked in other texts, also escaped, and truth values are not", () => {
  const { hideIn } = hidden(JSON.stringify({ a: 'say "hé"', b: [4711, true, null, ""] }), "$.a", "$.b");
  expect(hideIn(String.raw`refused {"a":"say \"h\u00e9\"","b":4711}, true`)).toBe('refused {"a":"***","b":***}, true');
});

test("a value of one or two characters is masked only if it is the whole text", () => {
  const { hideIn } = hidden('{"a":"a","b":12}', "$.a", "$.b");
  expect([hideIn("a"), hideIn("12"), hideIn("12 bananas")]).toEqual(["***", "***", "12 bananas"]);
});

test("what is no JSON is not shown, and without paths all is", () => {
  expect(hidden("no json", "$.a").text).toBeNull();
  expect(hidden("no json").text).toBe("no json");
  expect(hidden(null, "$.a").text).toBeNull();
});

test("a number is masked with the digits that it was received with, which a double does not hold", () => {
  const { text, hideIn } = hidden('{"card":{"number":6304000000000000017},"n":1}', "$.card.number");
  expect(text).toBe('{"card":{"number":"***"},"n":1}');
  expect([hideIn("6304000000000000017"), hideIn("card 6304000000000000017 refused")]).toEqual([
    "***",
    "card *** refused",
  ]);
});

test("nothing is left of a value in which a text was cut, however many characters", () => {
  const { hideIn } = hidden(JSON.stringify({ card: 'qz11-"x"-é-22' }), "$.card");
  for (const written of ['qz11-"x"-é-22', String.raw`qz11-\"x\"-\u00e9-22`, encodeURIComponent('qz11-"x"-é-22')]) {
    for (let length = 1; length <= written.length; length++) {
      const text = hideIn(`answered 400: <${written.slice(0, length)}…; the payload is its bytes`);
      expect(text).toMatch(/^answered 400: <(?:\*\*\*)?(?:[\\%]\w{0,5})?…; the payload is its bytes$/);
    }
  }
  expect(hideIn("answered 403: q")).toBe("answered 403: q");
});

test("an answer about many messages has neither keys nor reasons while fields are hidden, and else no secrets in them", () => {
  const answer = (reason: string) => ({
    rows: [{ id: "1", key: "k-sesame", topic: "t-sesame", lastError: reason, at: new Date(0) }],
    breaker: { reason },
    pause: { by: "alice", reason: "they migrate" },
    cells: [{ name: "a", reason: "gone" }],
  });
  const secrets = new KnownSecrets(["sesame"]);
  expect(operatorView(secrets, ["$.a"])(answer("bad"))).toEqual({
    ...answer("bad"),
    rows: [{ id: "1", key: "***", topic: "t-***", lastError: null, at: new Date(0) }],
    breaker: { reason: null },
  });
  const cut = "x".repeat(198);
  expect(operatorView(secrets, [])(answer(`${cut}ses`))).toEqual({
    ...answer(cut),
    rows: [{ ...answer(cut).rows[0], key: "k-***", topic: "t-***" }],
  });
});

test("hidden fields hide the reason that an operator's filter noted, and secrets a caller gives as a name", () => {
  const secrets = new KnownSecrets(["token-of-billing"]);
  const detail = String.raw`3 rows of {"state":"dead","reason":"customer \"Alice\" is blocked"}, ended early`;
  const entry = { by: "token-of-billing (admin route)", detail };
  expect(operatorView(secrets, ["$.a"])(entry)).toEqual({
    by: "*** (admin route)",
    detail: '3 rows of {"state":"dead","reason":null}, ended early',
  });
  expect(operatorView(secrets, [])(entry).detail).toBe(detail);
});
