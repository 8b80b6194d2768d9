// DATABASE_URL=postgres://shop:secret@localhost/shop node pay.mjs o-1
import pg from "pg";

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });

async function pay(orderId) {
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    const { rows } = await client.query("UPDATE orders SET status = 'paid' WHERE id = $1 RETURNING id, status", [
      orderId,
    ]);
    if (rows.length === 0) throw new Error(`no order ${orderId}`);
    await client.query("INSERT INTO outbox (topic, key, payload, headers) VALUES ($1, $2, $3, $4)", [
      "orders.paid",
      orderId,
      JSON.stringify(rows[0]),
      { "x-tenant": "acme" },
    ]);
    await client.query("COMMIT");
    client.release();
  } catch (error) {
    client.release(error); // closes the connection, and with it the transaction
    throw error;
  }
}

const [orderId] = process.argv.slice(2);
await pay(orderId).finally(() => pool.end());
console.log(`${orderId} is paid`);
