import { inspectConfig, type LoadedConfig, type LoadOptions, loadConfig } from "../../../src/config/load.ts";
import type { Config } from "../../../src/config/types.ts";

/** The least that a configuration needs. */
export const DATABASE = `database:
  url: jdbc:postgresql://db.internal:5432/svc
  username: svc
  password: s3cret
`;

/** A disk of a few files; anything else does not exist. */
export function disk(files: Readonly<Record<string, string>>): (path: string) => string {
  return (path) => {
    const text = files[path];
    if (text !== undefined) return text;
    throw Object.assign(new Error(`ENOENT: no such file or directory, open '${path}'`), { code: "ENOENT" });
  };
}

/** Loads a YAML text that stands in `svc.yml`. */
export function load(yaml: string, options: Partial<LoadOptions> = {}): LoadedConfig {
  return loadConfig({ env: {}, file: "svc.yml", readFile: disk({ "svc.yml": yaml }), ...options });
}

/** Loads a YAML text behind the database that every configuration needs. */
export function loadWith(yaml: string, options: Partial<LoadOptions> = {}): Config {
  return load(DATABASE + yaml, options).config;
}

/** What is wrong with a YAML text behind the database, a line for each problem. */
export function problemsOf(yaml: string, options: Partial<LoadOptions> = {}): string[] {
  return inspect(DATABASE + yaml, options).problems;
}

/** The warnings of a YAML text behind the database, a line each. */
export function warningsOf(yaml: string, options: Partial<LoadOptions> = {}): string[] {
  return inspect(DATABASE + yaml, options).warnings;
}

/** Problems and warnings of a whole file, as lines. */
export function inspect(yaml: string, options: Partial<LoadOptions> = {}) {
  const found = inspectConfig({ env: {}, file: "svc.yml", readFile: disk({ "svc.yml": yaml }), ...options });
  const lines = (list: typeof found.problems) => list.map(({ path, message }) => `${path}: ${message}`);
  return { problems: lines(found.problems), warnings: lines(found.warnings) };
}

// Sections with one entry each, to which a test adds the keys it is about.
export const http = (extra: string) => `destinations: { d: { baseUrl: http://h, ${extra} } }`;
export const source = (extra: string) => `sources: { s: { path: /p, idempotencyKeyPath: $.id, topic: t, ${extra} } }`;
export const queue = (extra: string) => `sources: { s: { queueName: q, connectionUrl: amqp://h, ${extra} } }`;
export const kafka = (extra: string) => `destinations: { d: { bootstrapServers: b, topic: t, ${extra} } }`;
export const nats = (extra: string) => `destinations: { d: { servers: s, subject: t, ${extra} } }`;
export const database = (extra: string) => `${DATABASE}  ${extra}`;
export const capture = (extra: string) => `outbox: { capture: { ${extra} } }`;
export const LOGICAL = "enabled: true, mode: postgres-logical, stateDirectory: /state";
