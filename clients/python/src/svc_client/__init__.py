"""The client of svc: messages into its outbox, messages out of its inbox, and the work of a message once."""

from .adapters import from_asyncpg, from_dbapi, from_django, from_psycopg, from_psycopg_async
from .adapters import from_sqlalchemy, from_sqlalchemy_async
from .http_source import HttpSource
from .message import EnqueueError, ErrorCode, Message, cell_of
from .once import ONCE_TABLE, ONCE_TABLE_SQL_SERVER, aforget, aonce, forget, once
from .outbox import AsyncTransaction, Dialect, Outbox, Transaction, aenqueue, aenqueue_many, enqueue, enqueue_many
from .sql_source import SqlSource
from .worker import Claim, Context, DeadMessage, Hooks, PulledMessage, PullSource, Result, RetryMessage, Worker

# fmt: off
__all__ = [
    "ONCE_TABLE", "ONCE_TABLE_SQL_SERVER", "AsyncTransaction", "Claim", "Context", "DeadMessage", "Dialect",
    "EnqueueError", "ErrorCode", "Hooks", "HttpSource", "Message", "Outbox", "PullSource", "PulledMessage", "Result",
    "RetryMessage", "SqlSource", "Transaction", "Worker", "aenqueue", "aenqueue_many", "aforget", "aonce", "cell_of",
    "enqueue", "enqueue_many", "forget", "from_asyncpg", "from_dbapi", "from_django", "from_psycopg",
    "from_psycopg_async", "from_sqlalchemy", "from_sqlalchemy_async", "once",
]
