import { execFileSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import pg from "pg";
import { createPostgresStore } from "../../src/adapters/stores/postgres/index.ts";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../../src/dev/embeddedPostgres.ts";
import { Secret } from "../../src/model/secret.ts";
import type { Store } from "../../src/ports/store.ts";
import { freePort } from "./ports.ts";
import { DEFAULT_NAMES } from "./postgresHarness.ts";
import { ManualClock, silentLog } from "./recorders.ts";

/** With the owners of the files. */
const copy = (from: string, to: string) => execFileSync("cp", ["-a", from, to]);

/** A server that goes back in time, at its address. */
export interface Server {
  readonly port: number;
  query(text: string, values?: readonly unknown[]): Promise<readonly Record<string, unknown>[]>;
  store(clock: ManualClock): Store;
}

/** Runs `before` on a server, puts back the state of before it, and runs `after` on that. */
export async function goBack(
  first: (server: Server) => Promise<void>,
  before: (server: Server) => Promise<void>,
  after: (server: Server) => Promise<void>,
): Promise<void> {
  const home = mkdtempSync(path.join(tmpdir(), "svc-gone-back-"));
  // As root the server runs as another user, who has to pass through.
  chmodSync(home, 0o711);
  const port = await freePort();
  const stores: Store[] = [];
  let running: EmbeddedPostgres | undefined;
  const start = async () => {
    running = await startEmbeddedPostgres({
      dataDirectory: path.join(home, "now"),
      port,
      settings: { fsync: "off" },
    });
  };
  const server: Server = {
    port,
    async query(text, values = []) {
      const client = new pg.Client({ connectionString: running?.url() });
      await client.connect();
      try {
        return (await client.query(text, [...values])).rows as Record<string, unknown>[];
      } finally {
        await client.end();
      }
    },
    store(clock) {
      const { host, user, password, database } = running as EmbeddedPostgres;
      const store = createPostgresStore(
        {
          endpoints: [{ host, port, tls: false }],
          database,
          username: user,
          password: new Secret(password.reveal()),
          primaryOnly: false,
          applicationName: "svc",
          connectionTimeoutMs: 10_000,
          poolSize: 2,
          names: DEFAULT_NAMES,
        },
        clock,
        silentLog,
      );
      stores.push(store);
      return store;
    },
  };
  try {
    await start();
    const migrating = server.store(new ManualClock());
    await migrating.schema.migrate();
    await first(server);
    await running?.stop();
    copy(path.join(home, "now"), path.join(home, "then"));
    await start();
    await before(server);
    await running?.stop();
    rmSync(path.join(home, "now"), { recursive: true });
    copy(path.join(home, "then"), path.join(home, "now"));
    await start();
    await after(server);
  } finally {
    for (const store of stores) await store.close();
    await running?.stop("immediate");
    rmSync(home, { recursive: true, force: true });
  }
}
