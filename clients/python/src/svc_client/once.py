"""Does the work of a message once, in the transaction of that work."""

from __future__ import annotations

from datetime import timedelta
from typing import Awaitable, Callable, Optional

from .outbox import AsyncTransaction, Transaction, checked

AsyncWork = Callable[[], Awaitable[object]]

ONCE_TABLE = """CREATE TABLE IF NOT EXISTS handled_messages (
  message_id text NOT NULL PRIMARY KEY, handled_at timestamptz NOT NULL DEFAULT now()
)"""
"""The table of `once`, for PostgreSQL; see `forget` for its clean-up."""
ONCE_TABLE_SQL_SERVER = """IF OBJECT_ID(N'handled_messages') IS NULL CREATE TABLE handled_messages (
  message_id nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
  handled_at datetimeoffset NOT NULL DEFAULT sysdatetimeoffset()
)"""
"""The same for SQL Server."""


def once(tx: Transaction, message_id: str, handle: Optional[Callable[[], object]] = None) -> bool:
    """Notes the message in the caller's transaction, and calls `handle` unless the message has been handled before.

    Returns whether this is the first time, so that `if once(tx, message_id):` does without `handle`. Commit the note with
    the work, or roll both back. A second receiver of the message waits for the end of the first one's transaction.

    `message_id` is `webhook-id` of a signed delivery, else `x-message-id`; or the id of a pulled message.
    """
    is_first = len(checked(tx, Transaction).query(_NOTE[tx.dialect], [message_id])) > 0
    if is_first and handle is not None:
        handle()
    return is_first


async def aonce(tx: AsyncTransaction, message_id: str, handle: Optional[AsyncWork] = None) -> bool:
    """`once` for an asynchronous driver."""
    is_first = len(await checked(tx, AsyncTransaction).query(_NOTE[tx.dialect], [message_id])) > 0
    if is_first and handle is not None:
        await handle()
    return is_first


def forget(tx: Transaction, older_than: timedelta) -> None:
    """Deletes the rows of messages that were handled longer ago; run it daily.

    Choose a time longer than any message is repeated, such as the retention of the outbox.
    """
    checked(tx, Transaction).query(_FORGET[tx.dialect], [str(older_than // _MILLISECOND)])


async def aforget(tx: AsyncTransaction, older_than: timedelta) -> None:
    """`forget` for an asynchronous driver."""
    await checked(tx, AsyncTransaction).query(_FORGET[tx.dialect], [str(older_than // _MILLISECOND)])


_MILLISECOND = timedelta(milliseconds=1)
_INSERT = "INSERT INTO handled_messages (message_id)"
_NOTE = {
    "postgresql": (f"{_INSERT} VALUES (", ") ON CONFLICT (message_id) DO NOTHING RETURNING message_id"),
    "sqlserver": (
        f"{_INSERT} OUTPUT inserted.message_id SELECT m.id FROM (SELECT ",
        " AS id) m WHERE NOT EXISTS (SELECT 1 FROM handled_messages WITH (UPDLOCK, HOLDLOCK) WHERE message_id = m.id)",
    ),
}
_DELETE = "DELETE FROM handled_messages WHERE handled_at <="
_FORGET = {
    "postgresql": (f"{_DELETE} now() - ", "::text::bigint * interval '1 millisecond'"),
    "sqlserver": (f"{_DELETE} dateadd(second, -CAST(", " AS bigint) / 1000, sysdatetimeoffset())"),
}
