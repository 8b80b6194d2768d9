import { beforeEach, expect, test } from "@jest/globals";
import { EndpointChoice } from "../../../../src/adapters/stores/postgres/connections.ts";

const [first, second, third] = ["a", "b", "c"].map((host) => ({ host, port: 5432, tls: false as const }));
const ALL = [first, second, third].filter((endpoint) => endpoint !== undefined);

let choice: EndpointChoice;

beforeEach(() => {
  choice = new EndpointChoice(ALL);
});

/** Works through a failed attempt at the current endpoint. */
const fail = () => choice.leave(choice.current, false);

test("a failed attempt leads to the next endpoint, the last one to the first", () => {
  const seen = ALL.map(() => {
    const { current } = choice;
    fail();
    return current;
  });
  expect([...seen, choice.current]).toEqual([first, second, third, first]);
});

test("of several attempts at one endpoint only the first failure counts", () => {
  for (const endpoint of ALL.map(() => choice.current)) choice.leave(endpoint, false);
  expect(choice.current).toBe(second);
});

test("new connections go to the host of a working one, although others have moved on since it began", () => {
  const slow = choice.current;
  fail();
  choice.works(slow);
  expect(choice.current).toBe(first);
});

test("a connection to an endpoint that is not the current one takes nobody from it", () => {
  fail();
  choice.leave(ALL[0] ?? choice.current, false);
  expect(choice.current).toBe(second);
  choice.leave(choice.current, false);
  expect(choice.current).toBe(third);
});

test("a standby is left with every way to it, and stays the place to go to when there is no other server", () => {
  const ways = [{ ...first, tls: {} }, first, second].map((way) => ({
    host: "a",
    port: 5432,
    tls: false as const,
    ...way,
  }));
  choice = new EndpointChoice(ways);
  choice.leave(choice.current, true);
  expect(choice.current).toBe(ways[2]);
  choice = new EndpointChoice(ways.slice(0, 2));
  choice.leave(choice.current, true);
  expect(choice.current).toBe(ways[0]);
});
