import { expect, test } from "@jest/globals";
import pg from "pg";
import { claimRequest, relayRequest } from "../conformance/store/harness.ts";
import { createDatabase, TEST_APPLICATION_NAME } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { postgresStore } from "../support/postgresHarness.ts";

failOnLeaks();

test("an inbox that is locked holds up no claim of an idle process, and is looked at again when it is free", async () => {
  await using database = await createDatabase();
  const store = postgresStore(database);
  const owner = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
  await owner.connect();
  try {
    await store.schema.migrate();
    const look = () => [store.inbox.relay(relayRequest()), store.outbox.claim(claimRequest())] as const;
    // Twice: from the second time on nothing but a look is made.
    for (let n = 0; n < 2; n += 1) await Promise.all(look());

    await owner.query("BEGIN; LOCK TABLE inbox IN ACCESS EXCLUSIVE MODE");
    await database.query("INSERT INTO outbox (topic, payload) VALUES ('t', '1')");
    const [relayed, claimed] = look();
    expect((await claimed).rows.map((row) => row.payload)).toEqual(["1"]);

    await owner.query(
      "INSERT INTO inbox (id, source, idempotency_key, payload) VALUES (gen_random_uuid(), 'orders', 'k', '2')",
    );
    await owner.query("COMMIT");
    expect((await relayed).relayed).toBe(1);
  } finally {
    await owner.end();
    await store.close();
  }
});
