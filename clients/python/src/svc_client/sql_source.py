"""Messages of the inbox of PostgreSQL, with psycopg 3.2 or newer."""

from __future__ import annotations

import uuid
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, AbstractSet, Any, Callable, ContextManager, Sequence

from .adapters import numbered
from .worker import Claim, PulledMessage, Result, milliseconds

if TYPE_CHECKING:
    import psycopg

    Connect = Callable[[], ContextManager[psycopg.Connection[Any]]]


class SqlSource:
    """Messages of a source with `consumption: pull`, from the table `inbox` that the connection finds.

    `connect` opens a connection as a context manager, such as `pool.connection` of a `psycopg_pool.ConnectionPool` with a
    connection for each message at a time and one to spare for claims and renewals. A message is dead after `max_attempts`
    claims. The handler's transaction is at the isolation level of the connection.
    """

    def __init__(self, connect: Connect, source: str, *, max_attempts: int = 5) -> None:
        self._connect, self._source, self._max_attempts = connect, source, max_attempts

    def claim(self, most: int, lease: float) -> Claim:
        token = str(uuid.uuid4())
        rows = self._run("claim", self._source, most, token, milliseconds(lease), self._max_attempts)
        return Claim(token, [_message_of(row) for row in rows])

    def renew(self, claim: Claim, ids: Sequence[str], lease: float) -> AbstractSet[str]:
        return {str(row["id"]) for row in self._run("renew", self._source, claim.token, milliseconds(lease))}

    def handled(self, claim: Claim, id: str, handle: Callable[[psycopg.Connection[Any]], None]) -> bool:
        from psycopg import Rollback

        with self._connect() as connection, connection.transaction() as transaction:
            handle(connection)
            is_held = len(numbered(connection, statement("complete"), [self._source, claim.token, [id]])) == 1
            if not is_held:
                raise Rollback(transaction)
        return is_held

    def retry(self, claim: Claim, id: str, delay: float, reason: str) -> Result:
        rows = self._run("retry", self._source, claim.token, id, milliseconds(delay), reason, self._max_attempts)
        return "lost" if not rows else "dead" if any(row["state"] == "dead" for row in rows) else "retry"

    def dead(self, claim: Claim, id: str, reason: str) -> bool:
        return len(self._run("dead", self._source, claim.token, id, reason)) > 0

    def release(self, claim: Claim, ids: Sequence[str]) -> None:
        self._run("release", self._source, claim.token)

    def _run(self, name: str, *values: object) -> list[dict[str, Any]]:
        with self._connect() as connection, connection.transaction():
            return numbered(connection, statement(name), values)


@lru_cache(maxsize=None)
def statement(name: str) -> Any:
    """A statement of `docs/examples/pull` of the service, byte for byte. `Any`, because psycopg takes only literal texts."""
    return (files("svc_client") / "sql" / f"{name}.sql").read_bytes().decode()


def _message_of(row: dict[str, Any]) -> PulledMessage:
    names = ("aggregate_id", "event_type", "idempotency_key", "correlation_id", "attempt", "headers", "payload")
    return PulledMessage(str(row["id"]), *(row[name] for name in names))
