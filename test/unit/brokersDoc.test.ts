import { readFileSync } from "node:fs";
import { describe, expect, test } from "@jest/globals";
import { loadConfig } from "../../src/config/load.ts";

/** docs/brokers.md shows configurations to copy: each must load as it stands. */

const PAGE = readFileSync(new URL("../../docs/brokers.md", import.meta.url), "utf8");
const BLOCKS = [...PAGE.matchAll(/^## (\w+)\n(?:(?!^## )[\s\S])*?^```yaml\n([\s\S]*?)^```$/gm)];
const PASSWORDS = { RABBITMQ_PASSWORD: "p1", KAFKA_PASSWORD: "p2", NATS_PASSWORD: "p3" };
const DATABASE = `
database:
  url: jdbc:postgresql://localhost/svc
  username: svc
  password: secret
`;

describe("docs/brokers.md", () => {
  test("shows a configuration for each broker", () => {
    expect(BLOCKS.map(([, heading]) => heading)).toEqual(["RabbitMQ", "Kafka", "NATS"]);
  });

  test.each(BLOCKS.map(([, heading, yaml]) => [heading, yaml]))(
    "shows one for %s that loads without a warning",
    (heading, yaml) => {
      const { config, warnings } = loadConfig({
        env: PASSWORDS,
        file: "svc.yml",
        readFile: () => `${DATABASE}${yaml}`,
        strict: true,
      });
      expect(warnings).toEqual([]);
      const kind = heading?.toLowerCase();
      expect(Object.values(config.sources).map((source) => source.kind)).toEqual([kind]);
      expect(Object.values(config.destinations).map((destination) => destination.kind)).toEqual([kind]);
    },
  );

  test("names only keys that exist", () => {
    const reference = readFileSync(new URL("../../docs/configuration.md", import.meta.url), "utf8");
    const named = new Set([...PAGE.matchAll(/`([a-z]+(?:[A-Z][a-z]+)+)(?::[^`]*)?`/g)].map(([, name]) => name ?? ""));
    // What is said of the brokers' own words.
    for (const foreign of ["messageId", "correlationId", "contentType"]) named.delete(foreign);
    expect(named.size).toBeGreaterThan(15);
    expect([...named].filter((name) => !reference.includes(name))).toEqual([]);
  });
});
