// A console project with the package Npgsql. SHOP='Host=localhost;Database=shop;Username=shop;Password=secret' dotnet run -- o-1
using System.Text.Json;
using Npgsql;
using NpgsqlTypes;

await using var shop = NpgsqlDataSource.Create(Environment.GetEnvironmentVariable("SHOP")!);
await PayAsync(shop, args[0]);
Console.WriteLine($"{args[0]} is paid");

static async Task PayAsync(NpgsqlDataSource shop, string orderId)
{
    await using var connection = await shop.OpenConnectionAsync();
    // Without CommitAsync its end is a rollback.
    await using var transaction = await connection.BeginTransactionAsync();

    await using var update = new NpgsqlCommand("UPDATE orders SET status = 'paid' WHERE id = $1", connection, transaction);
    update.Parameters.Add(new() { Value = orderId });
    if (await update.ExecuteNonQueryAsync() != 1) throw new InvalidOperationException($"no order {orderId}");

    await using var insert = new NpgsqlCommand(
        "INSERT INTO outbox (topic, key, payload, headers) VALUES ($1, $2, $3, $4)", connection, transaction);
    insert.Parameters.Add(new() { Value = "orders.paid" });
    insert.Parameters.Add(new() { Value = orderId });
    insert.Parameters.Add(new() { Value = JsonSerializer.Serialize(new { id = orderId, status = "paid" }) });
    insert.Parameters.Add(new() { Value = """{"x-tenant": "acme"}""", NpgsqlDbType = NpgsqlDbType.Jsonb });
    await insert.ExecuteNonQueryAsync();

    await transaction.CommitAsync();
}
