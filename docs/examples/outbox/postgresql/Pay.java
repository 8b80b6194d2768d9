// JDBC_URL='jdbc:postgresql://localhost/shop?user=shop&password=secret' java -cp 'lib/*' Pay.java o-1, with svc-client,
// jackson-databind, -core, -annotations and postgresql in lib/
import io.github.svcrelay.client.*;
import java.sql.*;
import java.util.Map;

public class Pay {
  public static void main(String[] args) throws SQLException {
    try (Connection connection = DriverManager.getConnection(System.getenv("JDBC_URL"))) {
      pay(connection, args[0]);
      System.out.println(args[0] + " is paid");
    }
  }

  static void pay(Connection connection, String orderId) throws SQLException {
    connection.setAutoCommit(false);
    try (PreparedStatement update = connection.prepareStatement("UPDATE orders SET status = 'paid' WHERE id = ?")) {
      update.setString(1, orderId);
      if (update.executeUpdate() != 1) throw new IllegalArgumentException("no order " + orderId);

      Message message = new Message("orders.paid")
          .key(orderId)
          .payload(Map.of("id", orderId, "status", "paid"))
          .headers(Map.of("x-tenant", "acme"));
      new Outbox().enqueue(Jdbc.of(connection), message);
      connection.commit();
    } catch (SQLException | RuntimeException error) {
      connection.rollback();
      throw error;
    }
  }
}
