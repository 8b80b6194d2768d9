"""Runs the cases of ../../contract/cases.json: see ../../contract/README.md.

`enqueue` and `once` run over psycopg, and as `enqueue-asyncpg` and so on over each other driver that is installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
import re
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, AsyncIterator, Awaitable, Callable, Iterator, Optional

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import psycopg
from psycopg.rows import dict_row

import svc_client as svc

CASES: list[dict[str, Any]] = json.loads(Path(os.environ["CONTRACT_CASES"]).read_text("utf-8"))["cases"]
DATABASE_URL = os.environ["DATABASE_URL"]
PULL_URL, PULL_TOKEN = os.environ["PULL_URL"], os.environ["PULL_TOKEN"]
Json = dict[str, Any]


class Skipped(Exception):
    pass


def of_kind(kind: str) -> list[Json]:
    return [case for case in CASES if case["kind"] == kind]


def sql(statement: str, *values: object) -> list[dict[str, Any]]:
    with psycopg.connect(DATABASE_URL, row_factory=dict_row) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def expect(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"{what} is {found!r}, expected {expected!r}")


# Drivers


@dataclass
class Session:
    """A connection with one of the drivers; `call` calls the function or its asynchronous variant with a transaction."""

    execute: Callable[[str], Awaitable[object]]
    call: Callable[..., Awaitable[Any]]


def of_sync(execute: Callable[[str], object], tx: svc.Transaction) -> Session:
    async def executed(statement: str) -> object:
        return execute(statement)

    async def call(function: Callable[..., Any], _: object, *given: object, **named: object) -> Any:
        return function(tx, *given, **named)

    return Session(executed, call)


def of_async(execute: Callable[[str], Awaitable[object]], tx: svc.AsyncTransaction) -> Session:
    async def call(_: object, function: Callable[..., Awaitable[Any]], *given: object, **named: object) -> Any:
        return await function(tx, *given, **named)

    return Session(execute, call)


@contextlib.asynccontextmanager
async def over_psycopg() -> AsyncIterator[Session]:
    with psycopg.connect(DATABASE_URL, autocommit=True) as connection:
        yield of_sync(lambda text: connection.execute(text.encode()), svc.from_psycopg(connection))


@contextlib.asynccontextmanager
async def over_psycopg_async() -> AsyncIterator[Session]:
    async with await psycopg.AsyncConnection.connect(DATABASE_URL, autocommit=True) as connection:
        yield of_async(lambda text: connection.execute(text.encode()), svc.from_psycopg_async(connection))


@contextlib.asynccontextmanager
async def over_asyncpg() -> AsyncIterator[Session]:
    import asyncpg

    connection: Any = await asyncpg.connect(DATABASE_URL)
    # As many applications have it: values of JSON are no texts.
    await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    try:
        yield of_async(connection.execute, svc.from_asyncpg(connection))
    finally:
        await connection.close()


def sqlalchemy_url(driver: str) -> str:
    return re.sub("^postgres(ql)?:", f"postgresql+{driver}:", DATABASE_URL)


@contextlib.asynccontextmanager
async def over_sqlalchemy() -> AsyncIterator[Session]:
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session as OrmSession

    engine = create_engine(sqlalchemy_url("psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, OrmSession(connection) as session:
        yield of_sync(lambda text: connection.exec_driver_sql(text), svc.from_sqlalchemy(session))
    engine.dispose()


@contextlib.asynccontextmanager
async def over_sqlalchemy_async() -> AsyncIterator[Session]:
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(sqlalchemy_url("asyncpg"), isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        yield of_async(lambda text: connection.exec_driver_sql(text), svc.from_sqlalchemy_async(connection))
    await engine.dispose()


@contextlib.asynccontextmanager
async def over_django() -> AsyncIterator[Session]:
    import django
    from django.conf import settings

    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    if not settings.configured:
        options = psycopg.conninfo.conninfo_to_dict(DATABASE_URL)
        names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
        database = {"ENGINE": "django.db.backends.postgresql", **{to: options.get(name) for to, name in names.items()}}
        settings.configure(DATABASES={"default": database})
        django.setup()
    from django.db import connection

    def execute(text: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(text)

    yield of_sync(execute, svc.from_django())
    connection.close()


DRIVERS: dict[str, Callable[[], contextlib.AbstractAsyncContextManager[Session]]] = {"": over_psycopg}
DRIVERS["-psycopg-async"] = over_psycopg_async
if importlib.util.find_spec("asyncpg"):
    DRIVERS["-asyncpg"] = over_asyncpg
if importlib.util.find_spec("sqlalchemy"):
    DRIVERS["-sqlalchemy"] = over_sqlalchemy
    if importlib.util.find_spec("asyncpg") and importlib.util.find_spec("greenlet"):
        DRIVERS["-sqlalchemy-async"] = over_sqlalchemy_async
if importlib.util.find_spec("django"):
    DRIVERS["-django"] = over_django


# enqueue


def message_of(case: Json) -> svc.Message:
    named = {"deliverAt": "deliver_at", "expiresAt": "expires_at"}
    fields = {name: value if name == "payload" else text_of(value) for name, value in case.items()}
    return svc.Message(**{named.get(name, name): value for name, value in fields.items()})


def text_of(value: Any) -> Any:
    if isinstance(value, dict) and "$surrogate" in value:
        return "a\ud83d"
    if isinstance(value, dict) and "$repeat" in value:
        repeated = value["$repeat"][0] * value["$repeat"][1]
        return f'"{repeated}"' if value.get("quoted") else repeated
    return value


@contextlib.contextmanager
def span(traceparent: Optional[str]) -> Iterator[None]:
    if traceparent is None:
        yield
        return
    try:
        from opentelemetry import trace
    except ImportError:
        raise Skipped("opentelemetry-api is not installed") from None
    _, trace_id, span_id, flags = traceparent.split("-")
    context = trace.SpanContext(int(trace_id, 16), int(span_id, 16), False, trace.TraceFlags(int(flags, 16)))
    with trace.use_span(trace.NonRecordingSpan(context)):
        yield


async def enqueue_case(case: Json, open_session: Callable[[], contextlib.AbstractAsyncContextManager[Session]]) -> None:
    options = case.get("options", {})
    # What another driver has left.
    for schema in [*options.get("cells", []), *([options["schema"]] if "schema" in options else [])]:
        sql(f"DROP SCHEMA IF EXISTS {quoted(schema)} CASCADE")
    for statement in ["TRUNCATE outbox", *case.get("setup", [])]:
        sql(statement)
    outbox = svc.Outbox(**options)
    async with open_session() as session:
        for step in case["steps"]:
            for name, statement in (("begin", "BEGIN"), ("commit", "COMMIT"), ("rollback", "ROLLBACK")):
                if name in step:
                    await session.execute(statement)
            if "savepoint" in step:
                await session.execute(f"SAVEPOINT {step['savepoint']}")
            if "rollbackTo" in step:
                await session.execute(f"ROLLBACK TO {step['rollbackTo']}")
            if "enqueue" in step or "enqueueMany" in step:
                await enqueue_step(outbox, session, step)
    if "rows" in case:
        rows = shown(options)
        expect("the number of rows", len(rows), len(case["rows"]))
        for row, expected in zip(rows, case["rows"]):
            expect("the row", {name: row[name] for name in expected}, expected)
    for cell, keys in case.get("rowsByCell", {}).items():
        expect(cell, [row["key"] for row in sql(f"SELECT key FROM {cell}.outbox ORDER BY sequence")], keys)


async def enqueue_step(outbox: svc.Outbox, session: Session, step: Json) -> None:
    try:
        with span(step.get("span")):
            if "enqueue" in step:
                message = message_of(step["enqueue"])
                ids = [await session.call(outbox.enqueue, outbox.aenqueue, message)]
            else:
                messages = [message_of(each) for each in step["enqueueMany"]]
                ids = await session.call(outbox.enqueue_many, outbox.aenqueue_many, messages)
    except svc.EnqueueError as error:
        expect("the refusal", error.code, step.get("error"))
        return
    expect("the refusal", None, step.get("error"))
    for id in ids:
        if not re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", id):
            raise AssertionError(f"the id is {id}, expected a UUID")
    if step.get("returns") == "increasing-v7":
        expect("the order of the ids", ids, sorted(set(ids)))
        expect("the version of the ids", [id for id in ids if not re.match(".{14}7.{4}[89ab]", id)], [])
    elif "returns" in step:
        expect("the ids", ids, [step["returns"]])


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def shown(options: Json) -> list[dict[str, Any]]:
    columns = options.get("columns", {})
    key, payload = quoted(columns.get("key", "key")), quoted(columns.get("payload", "payload"))
    iso = """to_char({} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')"""
    return sql(
        f"""SELECT id::text, topic, length(topic) AS "topicLength", {key} AS key, {payload} AS payload,
              length({payload}) AS "payloadLength", headers, destination, state, {iso.format("scheduled_at")} AS "scheduledAt",
              {iso.format("expires_at")} AS "expiresAt"
            FROM {quoted(options.get("schema", "public"))}.{quoted(options.get("table", "outbox"))} ORDER BY sequence"""
    )


# worker


class Run:
    """A case of a worker, while it runs."""

    def __init__(self, case: Json, transport: str) -> None:
        self.case = case
        self.transport = transport
        self.lock = threading.Lock()
        self.calls: list[svc.PulledMessage] = []
        self.cancelled: list[str] = []
        self.running: list[str] = []
        self.wrong: list[str] = []
        self.stops: list[threading.Thread] = []
        settings = case.get("worker", {})
        self.workers = [
            svc.Worker(
                self.source(settings.get("maxAttempts", 5)),
                self.handle,
                concurrency=settings.get("concurrency", 1),
                lease=settings.get("leaseMs", 30_000) / 1000,
                retry_delay=lambda attempt: float(settings.get("retryDelayMs", 50)) / 1000,
                poll=0.02,
                stop_timeout=settings.get("stopTimeoutMs", 30_000) / 1000,
            )
            for _ in range(case.get("workers", 1))
        ]

    def source(self, max_attempts: int) -> svc.PullSource[Any]:
        if self.transport == "sql":
            return svc.SqlSource(lambda: psycopg.connect(DATABASE_URL), "pulled", max_attempts=max_attempts)
        return svc.HttpSource(PULL_URL, "pulled", headers={"authorization": f"Bearer {PULL_TOKEN}"}, wait=0.1)

    def handle(self, message: svc.PulledMessage, context: svc.Context[Any]) -> None:
        id = message.idempotency_key
        chain = message.aggregate_id or id
        with self.lock:
            if chain in self.running:
                self.wrong.append(f"{id} is handled while another message of {chain} is")
            if message.payload != {"id": id}:
                self.wrong.append(f"the payload of {id} is {message.payload!r}")
            call = len([other for other in self.calls if other.id == message.id])
            self.calls.append(message)
            self.running.append(chain)
        try:
            self.begin(id, call)
            script = self.case["handler"].get(id) or self.case["handler"].get("*") or ["ok"]
            self.act(script[min(call, len(script) - 1)], id, context)
        finally:
            with self.lock:
                self.running.remove(chain)

    def begin(self, id: str, call: int) -> None:
        for event in self.case.get("events", []) if call == 0 else []:
            if event["whenStarted"] == id:
                sql(event["sql"])
        if self.case.get("stopWhenStarted") == id:
            thread = threading.Thread(target=self.workers[0].stop)
            thread.start()
            self.stops.append(thread)

    def act(self, what: str, id: str, context: svc.Context[Any]) -> None:
        action, _, milliseconds = what.partition(":")
        if action == "wait":
            time.sleep(int(milliseconds) / 1000)
        if action == "until-cancelled":
            context.cancelled.wait()
            self.cancelled.append(id)
        if action.startswith("write"):
            context.tx.execute("INSERT INTO written VALUES (%s)", (id,))
        if action in ("fail", "write-then-fail"):
            raise RuntimeError("handler said no")
        if action == "dead":
            raise svc.DeadMessage("never again")

    def states(self) -> str:
        """What differs from the states of the case."""
        rows = sql(
            'SELECT idempotency_key AS id, state, attempt, last_error AS "lastError", claim_token IS NOT NULL AS "isClaimed" FROM inbox'
        )
        found = {row["id"]: row for row in rows}
        for id, state in self.case["states"].items():
            expected = {**(state.get("http", state) if self.transport == "http" else state), "isClaimed": False}
            expected.pop("http", None)
            actual = {name: found[id][name] for name in expected}
            if actual != expected:
                return f"the state of {id} is {actual}, expected {expected}"
        if "stopWhenStarted" in self.case and (len(self.stops) != 1 or self.stops[0].is_alive()):
            return f"{len(self.stops)} stops were started, or one has not ended"
        return ""


def worker_case(case: Json, transport: str) -> None:
    sql("TRUNCATE inbox, written")
    for message in case["messages"]:
        sql(
            "INSERT INTO inbox (source, idempotency_key, aggregate_id, payload, consumption) VALUES ('pulled', %s, %s, %s, 'pull')",
            message["id"],
            message["aggregate"],
            json.dumps({"id": message["id"]}),
        )
    run = Run(case, transport)
    now, now_ns = time.time, time.time_ns
    offset = case.get("clockOffsetMs", 0)
    time.time = lambda: now() + offset / 1000
    time.time_ns = lambda: now_ns() + offset * 1_000_000
    try:
        for worker in run.workers:
            worker.start()
        until = time.monotonic() + 20
        while run.states() and time.monotonic() < until:
            time.sleep(0.05)
        left = run.states()
    finally:
        time.time, time.time_ns = now, now_ns
        for worker in run.workers:
            worker.stop()
    expect("what is left", left, "")
    expect("what is wrong", run.wrong, [])
    for aggregate, ids in case.get("order", {}).items():
        calls = [message.idempotency_key for message in run.calls if message.aggregate_id == aggregate]
        expect(f"the order of {aggregate}", calls, ids)
    expect("what was cancelled", run.cancelled, case.get("cancelled", []))
    if "written" in case:
        expect("what was written", [row["id"] for row in sql("SELECT id FROM written")], case["written"])


# once


async def once_case(case: Json, open_session: Callable[[], contextlib.AbstractAsyncContextManager[Session]]) -> None:
    sql("TRUNCATE handled_messages")
    async with open_session() as session:
        for call in case["calls"]:
            if "forgetOlderThanMs" in call:
                await session.call(svc.forget, svc.aforget, timedelta(milliseconds=call["forgetOlderThanMs"]))
                continue
            runs: list[str] = []

            async def handle(runs: list[str] = runs) -> None:
                runs.append("run")

            await session.execute("BEGIN")
            is_first = await session.call(
                lambda tx, id, runs=runs: svc.once(tx, id, lambda: runs.append("run")),
                lambda tx, id, handle=handle: svc.aonce(tx, id, handle),
                call["message"],
            )
            await session.execute("COMMIT" if call["end"] == "commit" else "ROLLBACK")
            expect(f"the run of {call['message']}", (len(runs) == 1, is_first), (call["runs"], call["runs"]))


def main() -> int:
    # Handlers fail on purpose.
    logging.disable()
    failed = 0

    def report(kind: str, case: Json, run: Callable[[], object]) -> None:
        nonlocal failed
        try:
            run()
            print(f"ok {kind} {case['id']}", flush=True)
        except Skipped as reason:
            print(f"ok {kind} {case['id']} # SKIP {reason}", flush=True)
        except Exception as error:
            failed += 1
            why = " ".join(str(error).split()) or type(error).__name__
            print(f"not ok {kind} {case['id']}: {why[:500]}", flush=True)
            if not isinstance(error, AssertionError):
                traceback.print_exc()

    for suffix, open_session in DRIVERS.items():
        for case in of_kind("enqueue"):
            report(f"enqueue{suffix}", case, lambda: asyncio.run(enqueue_case(case, open_session)))
    for transport in ("sql", "http"):
        for case in of_kind("worker"):
            if transport in case.get("transports", ["sql", "http"]):
                report(f"worker-{transport}", case, lambda: worker_case(case, transport))
    for suffix, open_session in DRIVERS.items():
        for case in of_kind("once"):
            report(f"once{suffix}", case, lambda: asyncio.run(once_case(case, open_session)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
