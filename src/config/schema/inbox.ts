import { inboundAuthSchema } from "../../adapters/sources/http/schema.ts";
import { boolean, integer, list, ms, section, text } from "../../model/schema.ts";

/** Section `inbox` (spec, "inbox"; design, "Pull rows"). */
export const inboxSchema = section("Receipt over HTTP, the relay into the outbox, and pull clients.", {
  basePath: text("Prefix of every HTTP source path.", { syntax: "urlPath", default: "/inbox" }),
  maxBodyBytes: integer("Largest request body on the data port.", { minimum: 1, default: 1048576 }),
  credentialHeaders: list(
    "Further credential headers of HTTP sources: not stored, forwarded or shown to transforms.",
    { type: "string", syntax: "headerName" },
    { default: [] },
  ),
  relay: section("The relay: copies push rows into the outbox.", {
    enabled: boolean("With `false` push rows stay in the inbox.", { default: true }),
    pollIntervalMs: ms("Wait between relay passes.", { minimum: 0, default: 100 }),
    batchSize: integer("Most rows per pass.", { minimum: 1, default: 100 }),
    claimTimeoutMs: ms("No effect: the relay makes no claims.", { minimum: 0, default: 300000 }),
    pendingGaugeIntervalMs: ms("Interval of the query for the oldest pending row.", { minimum: 0, default: 5000 }),
    maxAttempts: integer("`max_attempts` of outbox rows the relay creates.", {
      minimum: 1,
      maximum: 2147483647,
      defaultText: "`outbox.maxAttempts`",
    }),
  }),
  pull: section("Routes for clients of sources with `consumption: pull`.", {
    enabled: boolean("With `false` the pull routes do not exist (404).", { default: false }),
    auth: { ...inboundAuthSchema, description: "Credentials of pull clients." },
    basePath: text("Prefix of the pull routes `POST <basePath>/<source>/claim`, `/ack`, `/nack`, `/extend`.", {
      syntax: "urlPath",
      default: "/pull",
    }),
    leaseMs: ms("Default lease of a claim.", { exclusiveMinimum: 0, default: 30000 }),
    maxAttempts: integer("Claims without acknowledgement after which a row is `dead`.", {
      minimum: 1,
      maximum: 2147483647,
      default: 5,
    }),
  }),
});
