import { describe, expect, test } from "@jest/globals";
import { Ajv } from "ajv";
import { CORE_SCHEMA, load as parse } from "js-yaml";
import { jsonSchema } from "../../../src/config/jsonSchema.ts";
import { printConfig } from "../../../src/config/print.ts";
import { targetsOf } from "../../../src/config/routes.ts";
import { DATABASE, load, loadWith, problemsOf } from "./support.ts";

const DESTINATIONS =
  "destinations: { billing: { baseUrl: http://b }, audit: { baseUrl: http://a }, fraud: { baseUrl: http://f } }\n";
const WITH_LIST = `${DESTINATIONS}
routes:
  - topicPattern: orders.**
    destinations:
      - billing
      - name: fraud
        when: amount > 10
        transform: { expression: $.order }
        routingKeyTemplate: "{{ key }}"
        routingKeyMissingFieldDefault: none
        onExhausted: park
        maxAttempts: 9
      - name: audit
        when: { expression: vip, timeoutMs: 20, onError: Skip }
  - { topicPattern: "**", destination: audit, onExhausted: park }
`;
const routed = (keys: string) => `${DESTINATIONS}routes: [{ topicPattern: a, ${keys} }]`;

describe("the destinations of a route", () => {
  const { routes } = loadWith(WITH_LIST);

  test("are complete, whether they stand as names or as blocks", () => {
    expect(routes[0]).toEqual({
      topicPattern: "orders.**",
      destinations: [
        { name: "billing", routingKeyMissingFieldDefault: "", onExhausted: "dead" },
        {
          name: "fraud",
          when: { expression: "amount > 10", timeoutMs: 100, maxDepth: 100, onError: "Fail" },
          transform: { expression: "$.order", timeoutMs: 100, maxDepth: 100, onError: "Fail" },
          routingKeyTemplate: "{{ key }}",
          routingKeyMissingFieldDefault: "none",
          onExhausted: "park",
          maxAttempts: 9,
        },
        {
          name: "audit",
          when: { expression: "vip", timeoutMs: 20, maxDepth: 100, onError: "Skip" },
          routingKeyMissingFieldDefault: "",
          onExhausted: "dead",
        },
      ],
    });
    expect(routes.map(({ destinations }) => destinations !== undefined)).toEqual([true, false]);
  });

  test("have the key path of their entry, or of their route", () => {
    expect(routes.flatMap(targetsOf).map(({ destination, keyPath }) => [destination, keyPath])).toEqual([
      ["billing", "routes[0].destinations[0]"],
      ["fraud", "routes[0].destinations[1]"],
      ["audit", "routes[0].destinations[2]"],
      ["audit", "routes[1]"],
    ]);
    expect(routes.flatMap(targetsOf)[3]).toMatchObject({ onExhausted: "park", routingKeyMissingFieldDefault: "" });
  });

  test("may be one, or a thousand", () => {
    const names = Array.from({ length: 1000 }, (_, n) => `d${n}`);
    const yaml = (count: number) =>
      `destinations: { ${names.map((name) => `${name}: { baseUrl: http://h }`)} }\nroutes: [{ topicPattern: a, destinations: [${names.slice(0, count)}] }]`;
    for (const count of [1, 1000]) expect(loadWith(yaml(count)).routes[0]?.destinations).toHaveLength(count);
  });

  test("are printed in a form that loads as the same, with their origin", () => {
    const loaded = load(DATABASE + WITH_LIST);
    const text = printConfig(loaded);
    expect(text).toMatch(/- name: billing +# svc\.yml, line \d+\n +routingKeyMissingFieldDefault: "" +# default\n/);
    expect(text).toMatch(/when:\n +expression: "amount > 10" +# svc\.yml, line \d+\n +timeoutMs: 100 +# default\n/);
    expect(load(text.replace("password: ***", "password: s3cret")).config.routes).toEqual(loaded.config.routes);
  });

  test.each<[string, Record<string, string>, object]>([
    ["a text with commas", { SVC_ROUTES_0_DESTINATIONS: "audit, fraud" }, [{ name: "audit" }, { name: "fraud" }]],
    ["items", { SVC_ROUTES_0_DESTINATIONS_1: "audit" }, [{ name: "billing" }, { name: "audit" }]],
    [
      "keys of an item",
      { SVC_ROUTES_0_DESTINATIONS_1_NAME: "audit", SVC_ROUTES_0_DESTINATIONS_1_WHEN: "a" },
      [{ name: "billing" }, { name: "audit", when: { expression: "a", onError: "Fail" } }],
    ],
    ["placeholders", { NAMES: "audit,fraud" }, [{ name: "audit" }, { name: "fraud" }]],
  ])("are set by variables: %s", (_what, env, expected) => {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: a placeholder of the configuration
    const names = env.NAMES === undefined ? "[billing]" : "'${NAMES}'";
    expect(loadWith(routed(`destinations: ${names}`), { env }).routes[0]?.destinations).toMatchObject(expected);
  });

  test("hold no placeholder that is missing", () => {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: a placeholder of the configuration
    expect(problemsOf(routed("destinations: ['${NAME}']"))).toEqual([
      expect.stringMatching(/^routes\[0\]\.destinations\[0\]: .*NAME.* has no value/),
    ]);
  });
});

describe("the start ends", () => {
  test.each([
    ["destination: billing, destinations: [audit]", "destinations: cannot be combined with destination: remove one"],
    ["onExhausted: dead", "destination: is required: name a destination, or list several under destinations"],
    ["destinations: []", "destinations: must not be an empty list"],
    [`destinations: [${"billing, ".repeat(1001)}]`, "destinations: must not have more than 1000 items"],
    ["destinations: { billing: 1 }", "destinations: expected a list, found a mapping"],
    ["destinations: [billing, ~]", "destinations[1]: expected a mapping of keys, found nothing"],
    ["destinations: [[billing]]", "destinations[0]: expected a mapping of keys, found a list"],
    ["destinations: [{ when: a }]", "destinations[0].name: is required: Name of a destination"],
    [
      "destinations: [billing, audti]",
      'destinations[1].name: names no destination: there are billing, audit, fraud; found "audti"; did you mean "audit"?',
    ],
    ["destinations: [audit, { name: audit }]", "destinations[1].name: names audit a second time"],
    ["destinations: [{ name: audit, when: a > }]", "destinations[0].when.expression: does not compile: Unexpected end"],
    ["destinations: [{ name: audit, when: { expression: a > } }]", "destinations[0].when.expression: does not compile"],
    [
      "destinations: [{ name: audit, when: { expression: a, onError: skip } }]",
      "destinations[0].when.onError: expected one of",
    ],
    [
      "destinations: [{ name: audit, transform: { expression: a > } }]",
      "destinations[0].transform.expression: does not compile",
    ],
    ["destinations: [{ name: audit, maxAttempts: 0 }]", "destinations[0].maxAttempts: expected a whole number from 1"],
    ...[
      "transform: { expression: a }",
      "routingKeyTemplate: a",
      "routingKeyMissingFieldDefault: ''",
      "onExhausted: dead",
    ].map((keys) => [
      `destinations: [audit], ${keys}`,
      `${keys.split(":")[0]}: belongs in the entries of destinations: move it there`,
    ]),
  ])("with %j", (keys, problem) => {
    const [found, ...others] = problemsOf(routed(keys));
    expect(found).toContain(`routes[0].${problem}`);
    expect(others).toEqual([]);
  });
});

describe("the JSON Schema of routes", () => {
  const validate = new Ajv({ strict: true, strictRequired: false, allErrors: true }).compile(jsonSchema());

  test.each([
    [true, WITH_LIST],
    [true, "routes: [{ topicPattern: a, destinations: billing }]"],
    [false, "routes: [{ topicPattern: a }]"],
    [false, "routes: [{ topicPattern: a, destinations: [] }]"],
    [false, `routes: [{ topicPattern: a, destinations: [${"a, ".repeat(1001)}] }]`],
    [false, "routes: [{ topicPattern: a, destinations: [{ when: a }] }]"],
    [false, "routes: [{ topicPattern: a, destinations: [{ name: a, when: { timeoutMs: 1 } }] }]"],
  ])("%j %#", (isValid, yaml) => {
    expect(validate(parse(yaml, { schema: CORE_SCHEMA }))).toBe(isValid);
  });
});
