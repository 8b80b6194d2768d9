package io.github.svcrelay.client;

import java.util.List;
import java.util.Map;

/**
 * A connection or transaction of the caller: see {@link Jdbc} and {@link SpringJdbc}.
 *
 * @param <E> what its statements throw
 */
public interface Transaction<E extends Exception> {
  /** The SQL of a database. */
  enum Dialect { POSTGRESQL, SQLSERVER }

  Dialect dialect();

  /** Whether each statement is a transaction of its own. */
  boolean isAutoCommit() throws E;

  /**
   * Runs one statement.
   *
   * @param sql with a {@code ?} for each value
   * @param values in this order; an element may be null
   * @return the rows, by the names of their columns; none from a statement that gives none
   * @throws E if the database refuses the statement
   */
  List<Map<String, String>> query(String sql, List<String> values) throws E;
}
