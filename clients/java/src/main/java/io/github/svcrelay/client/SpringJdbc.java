package io.github.svcrelay.client;

import java.sql.Connection;
import java.util.List;
import java.util.Map;
import org.springframework.dao.DataAccessException;
import org.springframework.jdbc.core.ConnectionCallback;
import org.springframework.jdbc.core.JdbcTemplate;

/**
 * A {@code JdbcTemplate} of Spring: its statements join the {@code @Transactional} transaction of their caller.
 *
 * @param dialect the SQL of its database, whatever name its driver gives
 */
public record SpringJdbc(JdbcTemplate jdbc, Dialect dialect) implements Transaction<DataAccessException> {
  /** A template for PostgreSQL or SQL Server, as its driver says: make one for all transactions. */
  public static SpringJdbc of(JdbcTemplate jdbc) {
    return new SpringJdbc(jdbc, jdbc.execute((ConnectionCallback<Dialect>) Jdbc::dialectOf));
  }

  @Override
  public boolean isAutoCommit() {
    return jdbc.execute((ConnectionCallback<Boolean>) Connection::getAutoCommit);
  }

  @Override
  public List<Map<String, String>> query(String sql, List<String> values) {
    return jdbc.execute(
        (ConnectionCallback<List<Map<String, String>>>) connection -> new Jdbc(connection, dialect).query(sql, values));
  }
}
