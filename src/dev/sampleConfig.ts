import { existsSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

/** Path of the sample's HTTP source. */
export const SAMPLE_PATH = "/orders";

/**
 * The configuration that `svc dev` writes: one HTTP source, one HTTP destination, defaults for the rest.
 *
 * @param directory of the file, for the relative path of the schema in its modeline
 */
export function sampleConfig(directory: string): string {
  return `# yaml-language-server: $schema=${schemaPath(directory)}
#
# Sample configuration of svc: messages come in at POST /inbox${SAMPLE_PATH} and go out to an HTTP receiver.
# Every key and its default: docs/configuration.md. Check a change with: svc config check --config svc.yml

server:
  httpPort: 8080

# svc dev runs its own PostgreSQL and overrides these three.
database:
  url: \${DATABASE_URL:-jdbc:postgresql://localhost:5432/svc}
  username: \${DATABASE_USERNAME:-svc}
  password: \${DATABASE_PASSWORD:-svc}

sources:
  orders:
    path: ${SAMPLE_PATH}
    idempotencyKeyPath: $.id          # a second message with the same id is a duplicate
    eventTypePath: $.type             # becomes the topic, by the template below
    aggregateIdPath: $.customer       # messages of one customer are delivered in order
    topic: orders.{{ eventType }}

destinations:
  receiver:
    baseUrl: \${RECEIVER_URL:-http://127.0.0.1:8090}   # svc dev puts the address of its built-in receiver here
    path: /orders
    timeoutMs: 5000

routes:
  - topicPattern: orders.**
    destination: receiver
`;
}

/** The path of the configuration's JSON Schema from `directory`. */
function schemaPath(directory: string): string {
  for (let folder = dirname(fileURLToPath(import.meta.url)); folder !== dirname(folder); folder = dirname(folder)) {
    const schema = join(folder, "docs", "config.schema.json");
    if (existsSync(schema)) return relative(directory, schema);
  }
  return "docs/config.schema.json";
}
