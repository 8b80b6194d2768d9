// SHOP='Server=localhost,1433;Database=shop;User Id=shop;Password=secret' node pay.mjs o-1
import sql from "mssql";

const pool = await sql.connect(process.env.SHOP);

async function pay(orderId) {
  const transaction = new sql.Transaction(pool);
  await transaction.begin();
  try {
    const updated = await transaction
      .request()
      .input("id", sql.NVarChar(100), orderId)
      .query("UPDATE dbo.orders SET status = N'paid' WHERE id = @id;");
    if (updated.rowsAffected[0] !== 1) throw new Error(`no order ${orderId}`);
    await transaction
      .request()
      .input("topic", sql.NVarChar(1000), "orders.paid")
      .input("key", sql.NVarChar(800), orderId)
      .input("payload", sql.NVarChar(sql.MAX), JSON.stringify({ id: orderId, status: "paid" }))
      .input("headers", sql.NVarChar(sql.MAX), JSON.stringify({ "x-tenant": "acme" }))
      .query("INSERT INTO dbo.outbox (topic, [key], payload, headers) VALUES (@topic, @key, @payload, @headers);");
    await transaction.commit();
  } catch (error) {
    await transaction.rollback().catch(() => {}); // an error may have ended it already
    throw error;
  }
}

const [orderId] = process.argv.slice(2);
await pay(orderId).finally(() => pool.close());
console.log(`${orderId} is paid`);
