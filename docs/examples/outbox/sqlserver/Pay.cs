// A console project with the package Microsoft.Data.SqlClient. SHOP='Server=localhost;Database=shop;User Id=shop;Password=secret' dotnet run -- o-1
using System.Data;
using System.Text.Json;
using Microsoft.Data.SqlClient;

await PayAsync(Environment.GetEnvironmentVariable("SHOP")!, args[0]);
Console.WriteLine($"{args[0]} is paid");

static async Task PayAsync(string shop, string orderId)
{
    await using var connection = new SqlConnection(shop);
    await connection.OpenAsync();
    // Without CommitAsync its end is a rollback.
    await using var transaction = (SqlTransaction)await connection.BeginTransactionAsync();

    await using var update = new SqlCommand("UPDATE dbo.orders SET status = N'paid' WHERE id = @id;", connection, transaction);
    update.Parameters.Add("@id", SqlDbType.NVarChar, 100).Value = orderId;
    if (await update.ExecuteNonQueryAsync() != 1) throw new InvalidOperationException($"no order {orderId}");

    await using var insert = new SqlCommand(
        "INSERT INTO dbo.outbox (topic, [key], payload, headers) VALUES (@topic, @key, @payload, @headers);", connection, transaction);
    insert.Parameters.Add("@topic", SqlDbType.NVarChar, 1000).Value = "orders.paid";
    insert.Parameters.Add("@key", SqlDbType.NVarChar, 800).Value = orderId;
    insert.Parameters.Add("@payload", SqlDbType.NVarChar, -1).Value = JsonSerializer.Serialize(new { id = orderId, status = "paid" });
    insert.Parameters.Add("@headers", SqlDbType.NVarChar, -1).Value = """{"x-tenant": "acme"}""";
    await insert.ExecuteNonQueryAsync();

    await transaction.CommitAsync();
}
