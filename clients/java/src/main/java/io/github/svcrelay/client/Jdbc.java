package io.github.svcrelay.client;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Types;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A connection of JDBC, with the transaction that is under way on it.
 *
 * @param dialect the SQL of its database, whatever name its driver gives
 */
public record Jdbc(Connection connection, Dialect dialect) implements Transaction<SQLException> {
  /**
   * A connection whose driver names its database.
   *
   * @throws IllegalArgumentException for a database other than PostgreSQL and SQL Server
   */
  public static Jdbc of(Connection connection) throws SQLException {
    return new Jdbc(connection, dialectOf(connection));
  }

  static Dialect dialectOf(Connection connection) throws SQLException {
    String product = connection.getMetaData().getDatabaseProductName();
    return switch (product) {
      case "PostgreSQL" -> Dialect.POSTGRESQL;
      case "Microsoft SQL Server" -> Dialect.SQLSERVER;
      default -> throw new IllegalArgumentException("the database is " + product
          + ", expected PostgreSQL or Microsoft SQL Server; if it speaks the SQL of one of them, name the dialect");
    };
  }

  @Override
  public boolean isAutoCommit() throws SQLException {
    return connection.getAutoCommit();
  }

  @Override
  public List<Map<String, String>> query(String sql, List<String> values) throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement(sql)) {
      for (int n = 0; n < values.size(); n++) {
        // PostgreSQL gives a text of type OTHER the type of its column or cast; SQL Server converts an nvarchar.
        statement.setObject(n + 1, values.get(n), dialect == Dialect.POSTGRESQL ? Types.OTHER : Types.NVARCHAR);
      }
      List<Map<String, String>> rows = new ArrayList<>();
      if (!statement.execute()) return rows;
      ResultSet results = statement.getResultSet();
      ResultSetMetaData columns = results.getMetaData();
      while (results.next()) {
        Map<String, String> row = new LinkedHashMap<>();
        for (int n = 1; n <= columns.getColumnCount(); n++) row.put(columns.getColumnLabel(n), results.getString(n));
        rows.add(row);
      }
      return rows;
    }
  }
}
