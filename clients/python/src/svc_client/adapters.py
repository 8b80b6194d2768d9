"""Connections and transactions of drivers and ORMs as a `Transaction`. Each imports its driver when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Sequence, Union

from .outbox import AsyncTransaction, Dialect, Rows, Transaction

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session

Parts = Sequence[str]
Values = Sequence[Optional[str]]


def from_psycopg(connection: psycopg.Connection[Any]) -> Transaction:
    """psycopg 3: a connection within `connection.transaction()`, or before its `commit()`."""
    from psycopg import Cursor
    from psycopg.rows import dict_row

    def query(parts: Parts, values: Values) -> Rows:
        with Cursor(connection, row_factory=dict_row) as cursor:
            cursor.execute(_marked(parts), values)
            return cursor.fetchall() if cursor.description else []

    return Transaction("postgresql", query)


def from_psycopg_async(connection: psycopg.AsyncConnection[Any]) -> AsyncTransaction:
    """psycopg 3, asynchronous."""
    from psycopg import AsyncCursor
    from psycopg.rows import dict_row

    async def query(parts: Parts, values: Values) -> Rows:
        async with AsyncCursor(connection, row_factory=dict_row) as cursor:
            await cursor.execute(_marked(parts), values)
            return await cursor.fetchall() if cursor.description else []

    return AsyncTransaction("postgresql", query)


def from_asyncpg(connection: Any) -> AsyncTransaction:
    """asyncpg: a connection within `connection.transaction()`."""

    async def query(parts: Parts, values: Values) -> Rows:
        text = parts[0] + "".join(f"${n}{part}" for n, part in enumerate(parts[1:], 1))
        return [dict(row) for row in await connection.fetch(text, *values)]

    return AsyncTransaction("postgresql", query)


def from_sqlalchemy(connection: Union[Connection, Session], dialect: Dialect = "postgresql") -> Transaction:
    """SQLAlchemy: a `Connection` or `Session` in a transaction. A session flushes before, for the order of locks."""

    def query(parts: Parts, values: Values) -> Rows:
        if hasattr(connection, "flush"):
            connection.flush()
        result: Any = connection.execute(_clause(parts, values))
        return result.mappings().all() if result.returns_rows else []

    return Transaction(dialect, query)


def from_sqlalchemy_async(
    connection: Union[AsyncConnection, AsyncSession], dialect: Dialect = "postgresql"
) -> AsyncTransaction:
    """SQLAlchemy: an `AsyncConnection` or `AsyncSession` in a transaction."""

    async def query(parts: Parts, values: Values) -> Rows:
        if hasattr(connection, "flush"):
            await connection.flush()
        result: Any = await connection.execute(_clause(parts, values))
        return result.mappings().all() if result.returns_rows else []

    return AsyncTransaction(dialect, query)


def from_django(using: str = "default") -> Transaction:
    """Django: a database of the settings, within `transaction.atomic()`. SQL Server by the backend of `mssql-django`."""
    from django.db import connections

    connection = connections[using]
    return from_dbapi(connection, "sqlserver" if connection.vendor == "microsoft" else "postgresql")


def from_dbapi(connection: Any, dialect: Dialect = "postgresql", mark: str = "%s") -> Transaction:
    """Any connection of the DB-API: psycopg2, and with the mark `?` pyodbc."""

    def query(parts: Parts, values: Values) -> Rows:
        cursor = connection.cursor()
        try:
            cursor.execute(_marked(parts, mark), list(values))
            if cursor.description is None:
                return []
            names: list[str] = [column[0] for column in cursor.description]
            return [dict(zip(names, row)) for row in cursor.fetchall()]
        finally:
            cursor.close()

    return Transaction(dialect, query)


def numbered(connection: psycopg.Connection[Any], statement: Any, values: Sequence[object]) -> list[dict[str, Any]]:
    """Runs a statement with `$1`, `$2` and so on, which psycopg 3.2 sends unchanged."""
    from psycopg import RawCursor
    from psycopg.rows import dict_row

    with RawCursor(connection, row_factory=dict_row) as cursor:
        rows: list[dict[str, Any]] = cursor.execute(statement, values).fetchall()
        return rows


def _marked(parts: Parts, mark: str = "%s") -> Any:
    """The statement with a mark for each value. `Any`, because psycopg takes only literal texts."""
    return mark.join(part.replace("%", "%%") if mark == "%s" else part for part in parts)


def _clause(parts: Parts, values: Values) -> Any:
    from sqlalchemy import bindparam, text
    from sqlalchemy.types import NullType

    # A colon would begin a parameter. Without a type the dialect adds no cast, and the column decides.
    escaped = [part.replace(":", "\\:") for part in parts]
    clause = escaped[0] + "".join(f":p{n}{part}" for n, part in enumerate(escaped[1:]))
    return text(clause).bindparams(*(bindparam(f"p{n}", value, NullType()) for n, value in enumerate(values)))
