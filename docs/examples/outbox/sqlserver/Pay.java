// JDBC_URL='jdbc:sqlserver://localhost;databaseName=shop;user=shop;password=secret' java -cp mssql-jdbc.jar Pay.java o-1 '{"id":"o-1","status":"paid"}'
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;

public class Pay {
  public static void main(String[] args) throws SQLException {
    try (Connection connection = DriverManager.getConnection(System.getenv("JDBC_URL"))) {
      pay(connection, args[0], args[1]);
      System.out.println(args[0] + " is paid");
    }
  }

  /** @param payload what your JSON library makes of the order */
  static void pay(Connection connection, String orderId, String payload) throws SQLException {
    connection.setAutoCommit(false);
    try (PreparedStatement update = connection.prepareStatement("UPDATE dbo.orders SET status = N'paid' WHERE id = ?;");
        PreparedStatement insert = connection.prepareStatement(
            "INSERT INTO dbo.outbox (topic, [key], payload, headers) VALUES (?, ?, ?, ?);")) {
      update.setNString(1, orderId);
      if (update.executeUpdate() != 1) throw new IllegalArgumentException("no order " + orderId);

      insert.setNString(1, "orders.paid");
      insert.setNString(2, orderId);
      insert.setNString(3, payload);
      insert.setNString(4, "{\"x-tenant\": \"acme\"}");
      insert.executeUpdate();
      connection.commit();
    } catch (SQLException | RuntimeException error) {
      connection.rollback();
      throw error;
    }
  }
}
