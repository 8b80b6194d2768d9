package io.github.svcrelay.client;

import java.util.List;
import java.util.Map;
import org.springframework.dao.DataAccessException;
import org.springframework.jdbc.core.ConnectionCallback;
import org.springframework.jdbc.core.JdbcTemplate;

/** A {@code JdbcTemplate} of Spring: its statements join the {@code @Transactional} transaction of their caller. */
public final class SpringJdbc implements Transaction<DataAccessException> {
  private final JdbcTemplate jdbc;
  private final Dialect dialect;

  private SpringJdbc(JdbcTemplate jdbc, Dialect dialect) {
    this.jdbc = jdbc;
    this.dialect = dialect;
  }

  /** A template for PostgreSQL or SQL Server, as its driver says: make one for all transactions. */
  public static SpringJdbc of(JdbcTemplate jdbc) {
    return of(jdbc, jdbc.execute((ConnectionCallback<Dialect>) Jdbc::dialectOf));
  }

  /** A template for a database that its driver calls by another name. */
  public static SpringJdbc of(JdbcTemplate jdbc, Dialect dialect) {
    return new SpringJdbc(jdbc, dialect);
  }

  @Override
  public Dialect dialect() {
    return dialect;
  }

  @Override
  public List<Map<String, String>> query(String sql, List<String> values) {
    return jdbc.execute(
        (ConnectionCallback<List<Map<String, String>>>) connection -> Jdbc.of(connection, dialect).query(sql, values));
  }
}
