import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { changeLog, createOutbox, insert, slotOf } from "../support/postgresLog.ts";
import { changeLogConformance } from "./changeLog.ts";

failOnLeaks();

changeLogConformance("logical decoding of PostgreSQL", async () => {
  const outbox = await createOutbox();
  const { database, slot } = outbox;
  await database.query("ALTER TABLE outbox REPLICA IDENTITY FULL");
  const { changes } = changeLog(database, slot);
  const nobody = [{ host: "127.0.0.1", port: 1, tls: false as const }];
  return {
    changes,
    unreachable: changeLog(database, slot, { endpoints: nobody }).changes,
    secret: database.password,
    foreignPosition: "1:0/1",
    insert: async () => void (await insert(database)),
    changeOtherwise: async () => {
      await database.query("UPDATE outbox SET payload = '1'");
      await database.query("DELETE FROM outbox");
    },
    released: async () => void (await eventually(async () => (await slotOf(slot))?.active !== true)),
    close: async () => await outbox[Symbol.asyncDispose](),
  };
});
