import { describe, expect, test } from "@jest/globals";
import { describeQuery, readQuery } from "../../../../src/http/admin/query.ts";
import {
  AUDIT_QUERY,
  FAILURES_QUERY,
  MESSAGES_QUERY,
  OVERVIEW_QUERY,
  PARKED_QUERY,
} from "../../../../src/http/admin/reads.ts";

const QUERIES = { MESSAGES_QUERY, AUDIT_QUERY, FAILURES_QUERY, OVERVIEW_QUERY, PARKED_QUERY };

describe("the query of an admin route", () => {
  test("is read by parameter; absent ones are undefined, unknown ones are ignored", () => {
    const url = "/admin/failures?state=dead&destination=a%20b&unknown=1";
    expect(readQuery(FAILURES_QUERY)({ url })).toEqual({ state: "dead", destination: "a b", limit: undefined });
    expect(readQuery(OVERVIEW_QUERY)({ url: "/admin/overview" })).toEqual({ minutes: undefined });
  });

  test.each([
    ["MESSAGES_QUERY", "limit=501", '"limit": a whole number from 1 to 500 is expected'],
    ["MESSAGES_QUERY", "state=lost", '"state": one of pending, processing, sent, processed, dead is expected'],
    ["MESSAGES_QUERY", "id=7", '"id": a UUID such as 01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f is expected'],
    ["MESSAGES_QUERY", "key=%00", '"key": text without NUL and lone surrogates is expected'],
    ["FAILURES_QUERY", "state=sent", '"state": dead or parked is expected'],
    ["FAILURES_QUERY", "limit=", '"limit": a whole number from 1 to 500 is expected'],
    ["OVERVIEW_QUERY", "minutes=1441", '"minutes": a whole number from 1 to 1440 is expected'],
    ["AUDIT_QUERY", "cursor=x", '"cursor": the cursor of an answer is expected, as it came'],
    ["PARKED_QUERY", "limit=1e3", '"limit": a whole number from 1 to 10000 is expected'],
    ["PARKED_QUERY", "topic=***", '"topic": '],
  ] as const)("of %s with %s is refused by name", (name, query, reason) => {
    const read = readQuery<Parameters<typeof describeQuery>[0]>(QUERIES[name]);
    expect(() => read({ url: `/?${query}` })).toThrow(`the query parameter ${reason}`);
  });

  test.each(Object.entries(QUERIES))("of %s is read within the bounds that the document names", (_name, query) => {
    const read = readQuery<Parameters<typeof describeQuery>[0]>(query);
    for (const { name, schema } of describeQuery(query)) {
      const { minimum, maximum, enum: words } = schema as { minimum?: number; maximum?: number; enum?: string[] };
      for (const word of words ?? []) expect(read({ url: `/?${name}=${word}` })).toHaveProperty(name, word);
      if (minimum === undefined || maximum === undefined) continue;
      for (const bound of [minimum, maximum]) expect(read({ url: `/?${name}=${bound}` })).toHaveProperty(name, bound);
      for (const beyond of [minimum - 1, maximum + 1]) expect(() => read({ url: `/?${name}=${beyond}` })).toThrow(name);
    }
  });
});
