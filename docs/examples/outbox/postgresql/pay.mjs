// DATABASE_URL=postgres://shop:secret@localhost/shop node pay.mjs o-1
import { enqueue, fromPg } from "@svc-relay/client";
import pg from "pg";

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });

async function pay(id) {
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    const { rowCount } = await client.query("UPDATE orders SET status = 'paid' WHERE id = $1", [id]);
    if (rowCount === 0) throw new Error(`no order ${id}`);
    await enqueue(fromPg(client), {
      topic: "orders.paid",
      key: id,
      payload: { id, status: "paid" },
      headers: { "x-tenant": "acme" },
    });
    await client.query("COMMIT");
    client.release();
  } catch (error) {
    client.release(error); // closes the connection, and with it the transaction
    throw error;
  }
}

const [id] = process.argv.slice(2);
await pay(id).finally(() => pool.end());
console.log(`${id} is paid`);
