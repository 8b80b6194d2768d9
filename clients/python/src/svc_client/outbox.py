"""Writes messages into the outbox, in the caller's transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Iterable, Literal, Mapping, Optional, Sequence, TypeVar, Union

from .message import EnqueueError, Instant, Message, Row, cell_of, row_of

if TYPE_CHECKING:
    from uuid import UUID

    from typing_extensions import TypedDict, Unpack

    # The fields of a message as keyword arguments.
    Fields = TypedDict("Fields", {
        "topic": str, "payload": Any, "json": Optional[str], "key": Optional[str], "headers": Optional[Mapping[str, str]],
        "destination": Optional[str], "deliver_at": Optional[Instant], "expires_at": Optional[Instant],
        "id": Union[str, UUID, None],
    }, total=False)  # fmt: skip

T = TypeVar("T")
Dialect = Literal["postgresql", "sqlserver"]
Rows = Sequence[Mapping[str, Any]]
Statement = tuple[list[str], list[Optional[str]]]
"""The parts of a statement, with a value between each two; and the values."""


@dataclass(frozen=True)
class Transaction:
    """A connection or transaction of the caller: see the adapters, such as `from_psycopg`."""

    dialect: Dialect
    query: Callable[[Sequence[str], Sequence[Optional[str]]], Rows]


@dataclass(frozen=True)
class AsyncTransaction:
    """The same of an asynchronous driver, for the functions that begin with `a`."""

    dialect: Dialect
    query: Callable[[Sequence[str], Sequence[Optional[str]]], Awaitable[Rows]]


def checked(tx: object, kind: type[T]) -> T:
    """The transaction, unless it is a connection, or of the other kind."""
    if not isinstance(tx, kind):
        example = "from_psycopg(connection)" if kind is Transaction else "from_psycopg_async(connection)"
        raise TypeError(f"tx is of type {type(tx).__name__}, expected {kind.__name__}, such as {example}")
    return tx


_FIELDS = ("id", "topic", "payload", "key", "headers", "destination", "deliver_at", "expires_at")
_COLUMNS = {**dict(zip(_FIELDS, _FIELDS)), "deliver_at": "scheduled_at"}


class Outbox:
    """An outbox with names of the application's own. Names are quoted, whatever they hold.

    `columns` names columns by the fields of `Message`. `cells` are the schemas of the cells, in their order: each message
    goes to that of its key. Without a schema the connection finds the table. Raises `EnqueueError` with the code `options`
    for a bad name.
    """

    def __init__(
        self, *, table: str = "outbox", schema: Optional[str] = None, columns: Optional[Mapping[str, str]] = None,
        cells: Sequence[str] = (),
    ) -> None:  # fmt: skip
        columns = columns or {}
        for field in columns:
            if field not in _FIELDS:
                raise EnqueueError("options", f"columns has {field!r}, expected fields among {', '.join(_FIELDS)}")
        for name in [table, *([] if schema is None else [schema]), *cells, *columns.values()]:
            if not name or "\0" in name:
                raise EnqueueError("options", f"a table, schema or column is named {name!r}, expected a text without NUL")
        self.table = table
        self.columns: Mapping[str, str] = {**_COLUMNS, **columns}
        self.schemas: Sequence[Optional[str]] = tuple(cells) or (schema,)

    def enqueue(self, tx: Transaction, message: Optional[Message] = None, **fields: Unpack[Fields]) -> str:
        """Writes a message, given as such or as its fields, in the caller's transaction.

        Returns its id. Raises `EnqueueError` for a message that the database would refuse, before any statement.
        """
        return self.enqueue_many(tx, [_message(message, fields)])[0]

    def enqueue_many(self, tx: Transaction, messages: Iterable[Message]) -> list[str]:
        """Several messages in one statement (with cells: one for each), in this order. Returns their ids."""
        ids, statements = self._statements(checked(tx, Transaction).dialect, messages)
        for parts, values in statements:
            tx.query(parts, values)
        return ids

    async def aenqueue(self, tx: AsyncTransaction, message: Optional[Message] = None, **fields: Unpack[Fields]) -> str:
        """`enqueue` for an asynchronous driver."""
        return (await self.aenqueue_many(tx, [_message(message, fields)]))[0]

    async def aenqueue_many(self, tx: AsyncTransaction, messages: Iterable[Message]) -> list[str]:
        """`enqueue_many` for an asynchronous driver."""
        ids, statements = self._statements(checked(tx, AsyncTransaction).dialect, messages)
        for parts, values in statements:
            await tx.query(parts, values)
        return ids

    def place(self, dialect: Dialect, schema: Optional[str]) -> str:
        """The quoted name of the table."""
        return ".".join(quoted(dialect, name) for name in (schema, self.table) if name is not None)

    def _statements(self, dialect: Dialect, messages: Iterable[Message]) -> tuple[list[str], list[Statement]]:
        rows = [row_of(message) for message in messages]
        by_schema: dict[Optional[str], list[Row]] = {}
        for row in rows:
            by_schema.setdefault(self.schemas[cell_of(row["key"], len(self.schemas))], []).append(row)
        statements = [
            self._insert(dialect, schema, part[first : first + _MOST_ROWS])
            for schema, part in by_schema.items()
            for first in range(0, len(part), _MOST_ROWS)
        ]
        return [str(row["id"]) for row in rows], statements

    def _insert(self, dialect: Dialect, schema: Optional[str], rows: Sequence[Row]) -> Statement:
        """Only with the columns that a row needs: an application may have no right to the others."""
        fields = [field for field in _FIELDS if any(row[field] is not None for row in rows)]
        columns = ", ".join(quoted(dialect, self.columns[field]) for field in fields)
        parts: list[str] = []
        values: list[Optional[str]] = []
        text = f"INSERT INTO {self.place(dialect, schema)} ({columns}) VALUES "
        for n, row in enumerate(rows):
            text += "(" if n == 0 else "), ("
            for m, field in enumerate(fields):
                text += ", " if m > 0 else ""
                if row[field] is None and field in ("headers", "deliver_at"):
                    # Their columns are not null.
                    text += "DEFAULT"
                else:
                    parts.append(text)
                    values.append(row[field])
                    text = f"::text::{_CASTS[field]}" if dialect == "postgresql" and field in _CASTS else ""
        return [*parts, f"{text})"], values


def _message(message: Optional[Message], fields: Mapping[str, Any]) -> Message:
    if message is not None and (fields or not isinstance(message, Message)):
        given = " and ".join([type(message).__name__, *fields])
        raise TypeError(f"{given} given, expected a Message, or its fields by keyword")
    return message or Message(**fields)


def quoted(dialect: Dialect, name: str) -> str:
    """The name in the quotation marks of the dialect."""
    return '"' + name.replace('"', '""') + '"' if dialect == "postgresql" else "[" + name.replace("]", "]]") + "]"


_MOST_ROWS = 250
"""SQL Server takes 2100 parameters in a statement, and a thousand rows."""
_CASTS = {"id": "uuid", "headers": "jsonb", "deliver_at": "timestamptz", "expires_at": "timestamptz"}
"""Drivers leave no type to the column, or encode a value by it, as asyncpg does. A text serves all of them."""

_default = Outbox()
enqueue, enqueue_many = _default.enqueue, _default.enqueue_many
aenqueue, aenqueue_many = _default.aenqueue, _default.aenqueue_many
