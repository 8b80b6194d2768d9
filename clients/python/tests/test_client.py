"""What the cases of the contract leave open: `python -m unittest discover tests`.

Tests of the database run if `DATABASE_URL` names a PostgreSQL with the tables of svc, the test of `run_svc_dev` if `SVC_BIN`
names the program.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Callable, Optional, Sequence
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import svc_client as svc
from svc_client import http_source, message, outbox, sql_source, testing

DATABASE_URL = os.environ.get("DATABASE_URL", "")
EXAMPLES = Path(__file__).parents[3] / "docs" / "examples" / "pull"


def recording(dialect: outbox.Dialect = "postgresql") -> tuple[svc.Transaction, list[tuple[str, Sequence[Optional[str]]]]]:
    """A transaction that keeps its statements, with `?` for values."""
    statements: list[tuple[str, Sequence[Optional[str]]]] = []

    def query(parts: Sequence[str], values: Sequence[Optional[str]]) -> list[dict[str, Any]]:
        statements.append(("?".join(parts), values))
        return []

    return svc.Transaction(dialect, query), statements


class Enqueue(unittest.TestCase):
    def refused(self, **fields: Any) -> tuple[str, str]:
        tx, statements = recording()
        with self.assertRaises(svc.EnqueueError) as caught:
            svc.enqueue(tx, **fields)
        self.assertEqual(statements, [])
        return caught.exception.code, str(caught.exception)

    def test_a_row_has_only_the_columns_that_it_needs(self) -> None:
        tx, statements = recording()
        id = svc.enqueue(tx, svc.Message("t", {"ä": 1}))
        expected = 'INSERT INTO "outbox" ("id", "topic", "payload") VALUES (?::text::uuid, ?, ?)'
        self.assertEqual(statements, [(expected, [id, "t", '{"ä":1}'])])

    def test_rows_of_one_statement_have_defaults(self) -> None:
        tx, statements = recording()
        later = datetime(2031, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
        messages = [svc.Message("a", 1, key="k"), svc.Message("b", 2, headers={"h": "v"}, deliver_at=later)]
        svc.enqueue_many(tx, messages)
        text, values = statements[0]
        self.assertEqual(
            text.partition(" VALUES ")[2],
            "(?::text::uuid, ?, ?, ?, DEFAULT, DEFAULT), (?::text::uuid, ?, ?, ?, ?::text::jsonb, ?::text::timestamptz)",
        )
        self.assertEqual(
            [*values[1:4], *values[5:]], ["a", "1", "k", "b", "2", None, '{"h":"v"}', "2031-01-01T00:00:00+00:00"]
        )

    def test_sql_server_has_brackets_and_no_casts(self) -> None:
        tx, statements = recording("sqlserver")
        svc.Outbox(table="my ]table", schema="dbo").enqueue(
            tx, topic="t", json="1", key="k", expires_at="2031-01-01T00:00:00Z"
        )
        text, values = statements[0]
        self.assertEqual(
            text, "INSERT INTO [dbo].[my ]]table] ([id], [topic], [payload], [key], [expires_at]) VALUES (?, ?, ?, ?, ?)"
        )
        self.assertEqual(values[1:], ["t", "1", "k", "2031-01-01T00:00:00+00:00"])

    def test_many_rows_are_several_statements(self) -> None:
        tx, statements = recording()
        ids = svc.enqueue_many(tx, (svc.Message("t", n) for n in range(501)))
        self.assertEqual([len(values) for _, values in statements], [750, 750, 3])
        self.assertEqual([*ids], sorted(set(ids)))

    def test_refusals(self) -> None:
        self.assertEqual(self.refused(topic="t", payload=float("nan"))[0], "payload")
        self.assertEqual(self.refused(topic="t", payload=datetime.now())[0], "payload")
        self.assertEqual(self.refused(topic="t", json="[NaN]")[0], "payload")
        self.assertEqual(self.refused(topic="t", json=b"1")[0], "payload")
        self.assertEqual(self.refused(topic="t")[1], "neither of payload and json given, expected one")
        self.assertEqual(self.refused(topic="t", payload=1, headers={"n": 1})[0], "headers")
        self.assertEqual(self.refused(topic="t", payload=1, headers=["n"])[0], "headers")
        self.assertEqual(self.refused(topic="t", payload=1, deliver_at=datetime(2031, 1, 1))[0], "time")
        self.assertEqual(self.refused(topic="t", payload=1, deliver_at="2031-01-01T00:00:00")[0], "time")
        self.assertEqual(self.refused(topic="t", payload=1, expires_at="soon")[0], "time")
        self.assertEqual(self.refused(topic="t", payload=1, expires_at=7)[0], "time")
        code, text = self.refused(topic="t", payload=1, key="😀" * 401)
        self.assertEqual((code, text), ("key", "the key has 802 characters (UTF-16), at most 800 fit"))
        with self.assertRaisesRegex(svc.EnqueueError, "columns has 'body', expected fields among id, topic"):
            svc.Outbox(columns={"body": "b"})
        with self.assertRaisesRegex(TypeError, "^Message and key given, expected"):
            svc.enqueue(recording()[0], svc.Message("t", 1), key="k")

    def test_types_that_are_wrong(self) -> None:
        with self.assertRaisesRegex(TypeError, "^str given, expected a Message, or its fields by keyword"):
            svc.enqueue(recording()[0], "orders.paid")  # type: ignore[arg-type]
        connection: Any = object()
        of_async: Any = svc.AsyncTransaction("postgresql", lambda parts, values: self.fail())
        expected = "expected Transaction, such as from_psycopg"
        with self.assertRaisesRegex(TypeError, f"tx is of type object, {expected}"):
            svc.enqueue(connection, topic="t", payload=1)
        with self.assertRaisesRegex(TypeError, f"tx is of type AsyncTransaction, {expected}"):
            svc.once(of_async, "i")
        with self.assertRaisesRegex(
            TypeError, "tx is of type object, expected AsyncTransaction, such as from_psycopg_async"
        ):
            asyncio.run(svc.aonce(connection, "i"))

    def test_payloads(self) -> None:
        self.assertEqual(message.json_of(["\ud83d", "é", None]), '["\\ud83d","é",null]')
        digits = "1" * 5000
        self.assertEqual(message.row_of(svc.Message("t", json=digits))["payload"], digits)

    def test_cells(self) -> None:
        # 256 is 1 modulo 3: three cells would not show the order of the bytes.
        keys = ["order-1", "käse", "😀", "", None]
        self.assertEqual([svc.cell_of(key, 1000) for key in keys], [65, 960, 188, 610, 0])

    def test_ids_increase_when_the_clock_stands_still(self) -> None:
        with mock.patch("time.time_ns", return_value=10**18):
            ids = [message.new_id() for _ in range(1000)]
        self.assertEqual(ids, sorted(set(ids)))


class Sources(unittest.TestCase):
    def test_types(self) -> None:
        of_http: svc.PullSource[None] = svc.HttpSource("http://127.0.0.1:9/pull/", "web shop")
        of_sql: svc.PullSource[Any] = svc.SqlSource(lambda: self.fail(), "orders")
        self.assertIsNotNone((of_http, of_sql))
        with self.assertRaisesRegex(ValueError, "the url is 'svc:8080', expected http://"):
            svc.HttpSource("svc:8080", "orders")

    @unittest.skipUnless(EXAMPLES.exists(), "docs/examples/pull is not here")
    def test_the_statements_are_those_of_the_documentation(self) -> None:
        names = sorted(path.stem for path in EXAMPLES.glob("*.sql"))
        self.assertEqual(names, ["claim", "complete", "dead", "release", "renew", "retry"])
        for name in names:
            self.assertEqual(sql_source.statement(name).encode(), (EXAMPLES / f"{name}.sql").read_bytes())

    def test_the_database_decides_when_a_message_is_dead(self) -> None:
        source = svc.SqlSource(lambda: self.fail(), "orders")
        later = {"id": "j", "state": "pending", "released": True}
        for state, result in (("pending", "retry"), ("dead", "dead"), (None, "lost")):
            rows = [{"id": "i", "state": state, "released": False}, later] if state else []
            with mock.patch.object(source, "_run", return_value=rows):
                self.assertEqual(source.retry(svc.Claim("c", []), "i", 1, "no stock"), result)

    def test_payloads_are_texts(self) -> None:
        deep = "[" * 100_000 + "]" * 100_000
        payloads = ['{"payload": {"payload": [1.0, "}]"]}, "n": 1e999}', deep, '"no \\" json"', "12345678901234567890"]
        messages = [
            f'{{"id": "{n}", "eventType": "payload", "headers": {{"payload": "x"}}, "payload":  {payload}}}'
            for n, payload in enumerate(payloads)
        ]
        rest, found = http_source._payloads_of(f'{{"claimToken":"c","messages":[{", ".join(messages)}]}}')
        self.assertEqual(found, payloads)
        answer = json.loads(rest)
        self.assertEqual([each["id"] for each in answer["messages"]], ["0", "1", "2", "3"])
        self.assertEqual(answer["messages"][0]["headers"], {"payload": "x"})
        self.assertEqual(http_source._payloads_of('{"claimToken":null,"messages":[]}')[1], [])


class Pull(ThreadingHTTPServer):
    """Pull routes with one message, whose claims wait a moment after it; each request is recorded."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        pull = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                operation = self.path.rpartition("/")[2]
                is_first = not any(name == "claim" for name, _ in pull.requests)
                pull.requests.append((operation, body))
                one = '{"id":"i","aggregateId":null,"eventType":null,"idempotencyKey":"k","correlationId":null,'
                one += '"attempt":1,"headers":{},"payload":1}'
                answer = f'{{"claimToken":"c","leaseMs":1,"messages":[{one if is_first else ""}]}}'
                if operation != "claim":
                    dead = '"i"' if "maxed" in self.path else ""
                    lost = '"i"' if "taken" in self.path else ""
                    answer = f'{{"acknowledged":["i"],"extended":["i"],"dead":[{dead}],"lost":[{lost}]}}'
                elif not is_first:
                    time.sleep(0.1)
                status = 404 if "gone/web%20shop" in self.path else 200
                answer = "no such source" if status == 404 else answer
                self.send_response(status)
                self.end_headers()
                self.wfile.write(answer.encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server_address[1]}/pull"
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def of(self, operation: str) -> list[dict[str, Any]]:
        return [body for name, body in self.requests if name == operation]


class Ended(svc.Hooks):
    def __init__(self) -> None:
        self.results: list[str] = []
        self.errors: list[Exception] = []

    def failed(self, error: Exception) -> None:
        self.errors.append(error)

    def ended(self, message: svc.PulledMessage, result: svc.Result, seconds: float) -> None:
        self.results.append(result)
        raise LookupError("a hook that fails")


class Workers(unittest.TestCase):
    def setUp(self) -> None:
        self.pull = Pull()
        self.addCleanup(self.pull.server_close)
        self.addCleanup(self.pull.shutdown)
        self.enterLogs()

    def enterLogs(self) -> None:
        logs = self.assertLogs("svc_client")
        logs.__enter__().records.clear()
        self.addCleanup(lambda: logs.__exit__(KeyboardInterrupt, None, None))

    def run_worker(self, handle: Any, until: str, source: str = "s", **options: Any) -> Ended:
        hooks = Ended()
        with svc.Worker(svc.HttpSource(self.pull.url, source), handle, hooks=hooks, poll=0.01, **options):
            self.until(lambda: self.pull.of(until) != [])
            self.until(lambda: len(self.pull.of("claim")) >= 2)
        return hooks

    def until(self, condition: Any) -> None:
        end = time.monotonic() + 10
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def test_a_handler_over_http_has_no_transaction(self) -> None:
        hooks = self.run_worker(lambda message, context: self.assertIsNone(context.tx), "ack")
        self.assertEqual(hooks.results, ["done"])
        expected = {"max": 1, "leaseMs": 30_000, "waitMs": 5000}
        self.assertEqual(self.pull.of("claim")[0], expected)

    def test_a_claim_that_is_refused(self) -> None:
        source = svc.HttpSource(self.pull.url + "/gone", "web shop")
        with self.assertRaisesRegex(RuntimeError, "claim of web shop: 404 no such source, expected status 200"):
            source.claim(1, 30)

    def test_whatever_a_handler_raises_is_a_failure(self) -> None:
        def handle(message: svc.PulledMessage, context: svc.Context[None]) -> None:
            raise asyncio.CancelledError

        hooks = self.run_worker(handle, "nack", retry_delay=lambda attempt: 7.0)
        self.assertEqual(
            self.pull.of("nack"), [{"claimToken": "c", "ids": ["i"], "delayMs": 7000, "error": "CancelledError"}]
        )
        self.assertEqual(hooks.results, ["retry"])

    def test_a_handler_sets_the_wait(self) -> None:
        def handle(message: svc.PulledMessage, context: svc.Context[None]) -> None:
            raise svc.RetryMessage(60, "no stock\0\ud83d")

        self.run_worker(handle, "nack")
        self.assertEqual(
            self.pull.of("nack")[0], {"claimToken": "c", "ids": ["i"], "delayMs": 60_000, "error": "no stock\ufffd?"}
        )

    def test_an_error_without_a_text(self) -> None:
        class Odd(Exception):
            def __str__(self) -> str:
                raise LookupError

        def handle(message: svc.PulledMessage, context: svc.Context[None]) -> None:
            raise Odd

        self.assertEqual(self.run_worker(handle, "nack").results, ["retry"])
        self.assertEqual(self.pull.of("nack")[0]["error"], "Odd")

    def test_a_wait_is_as_long_as_the_service_takes(self) -> None:
        source = svc.HttpSource(self.pull.url, "taken")
        for delay in (172_800.0, -1.0):
            self.assertEqual(source.retry(svc.Claim("c", []), "i", delay, "no"), "lost")
        self.assertEqual([body["delayMs"] for body in self.pull.of("nack")], [86_400_000, 0])

    def test_the_service_decides_when_a_message_is_dead(self) -> None:
        def handle(message: svc.PulledMessage, context: svc.Context[None]) -> None:
            raise svc.DeadMessage("never") if source == "s" else LookupError("no stock")

        for source, reason, result in (("s", "never", "retry"), ("maxed", "no stock", "dead")):
            self.pull.requests.clear()
            hooks = self.run_worker(handle, "nack", source, retry_delay=lambda attempt: 7.0)
            expected = {"claimToken": "c", "ids": ["i"], "delayMs": 7000, "error": reason}
            self.assertEqual((self.pull.of("nack"), hooks.results), ([expected], [result]))

    def test_a_stop_while_all_are_busy_gives_back(self) -> None:
        worker: list[svc.Worker[None]] = []

        def handle(message: svc.PulledMessage, context: svc.Context[None]) -> None:
            threading.Thread(target=worker[0].stop).start()
            self.assertTrue(context.cancelled.wait(10))

        hooks = Ended()
        worker.append(svc.Worker(svc.HttpSource(self.pull.url, "s"), handle, hooks=hooks, stop_timeout=0.1))
        with worker[0]:
            worker[0].wait()
        self.assertEqual(hooks.results, ["released"])
        self.assertEqual(self.pull.of("nack"), [{"claimToken": "c", "ids": ["i"]}])
        with self.assertRaisesRegex(RuntimeError, "threads can only be started once"):
            worker[0].start()

    def test_a_lease_ends_when_renewals_fail(self) -> None:
        def handle(message: svc.PulledMessage, context: svc.Context[None]) -> None:
            self.assertTrue(context.cancelled.wait(10))

        hooks = Ended()
        source = svc.HttpSource(self.pull.url, "s")
        with mock.patch.object(source, "renew", side_effect=OSError("no route")) as renew:
            with svc.Worker(source, handle, hooks=hooks, lease=0.3):
                self.until(lambda: hooks.results == ["lost"])
        self.assertGreaterEqual(renew.call_count, 2)
        self.assertEqual(self.pull.of("ack") + self.pull.of("nack"), [])

    def test_a_lease_ends_while_a_renewal_hangs(self) -> None:
        took: list[float] = []

        def handle(message: svc.PulledMessage, context: svc.Context[None]) -> None:
            begun_at = time.monotonic()
            self.assertTrue(context.cancelled.wait(10))
            took.append(time.monotonic() - begun_at)

        hooks = Ended()
        source = svc.HttpSource(self.pull.url, "s")
        answered = threading.Event()
        self.addCleanup(answered.set)
        with mock.patch.object(source, "renew", side_effect=lambda *_: answered.wait(20)):
            with svc.Worker(source, handle, hooks=hooks, lease=0.3):
                self.until(lambda: hooks.results == ["lost"])
        self.assertLess(took[0], 2)
        self.assertEqual([str(error) for error in hooks.errors], ["the lease ended before the answer to its renewal"])
        self.assertEqual(self.pull.of("ack") + self.pull.of("nack"), [])

    def test_a_claim_that_waits_longer_than_its_lease(self) -> None:
        source = svc.HttpSource(self.pull.url, "s")
        claim = source.claim

        def late(most: int, lease: float) -> svc.Claim:
            time.sleep(1)
            return claim(most, lease)

        def handle(message: svc.PulledMessage, context: svc.Context[None]) -> None:
            self.assertFalse(context.cancelled.wait(1.5))

        hooks = Ended()
        with mock.patch.object(source, "claim", late), svc.Worker(source, handle, hooks=hooks, lease=0.9):
            self.until(lambda: hooks.results == ["done"])


class Memory:
    """A source in memory with one claim; it records what the worker reports."""

    def __init__(self, *messages: tuple[str, Optional[str]]) -> None:
        self.left = [svc.PulledMessage(id, of, None, id, None, 1, {}, "{}") for id, of in messages]
        self.reports: list[tuple[object, ...]] = []

    def claim(self, most: int, lease: float) -> svc.Claim:
        messages, self.left = self.left[:most], self.left[most:]
        return svc.Claim("c", messages)

    def renew(self, claim: svc.Claim, ids: Sequence[str], lease: float) -> set[str]:
        return set(ids)

    def handled(self, claim: svc.Claim, id: str, handle: Callable[[str], None]) -> bool:
        handle("tx")
        self.reports.append(("done", id))
        return True

    def retry(self, claim: svc.Claim, id: str, delay: float, reason: str) -> svc.Result:
        self.reports.append(("retry", id, delay, reason))
        return "lost" if reason == "lost" else "retry"

    def dead(self, claim: svc.Claim, id: str, reason: str) -> bool:
        self.reports.append(("dead", id, reason))
        return True

    def release(self, claim: svc.Claim, ids: Sequence[str]) -> None:
        self.reports.append(("release", *ids))


class Aggregates(unittest.TestCase):
    def handled(self, fails: str) -> tuple[list[str], list[tuple[object, ...]]]:
        source = Memory(("a0", "a"), ("n0", None), ("a1", "a"), ("b0", "b"), ("n1", None), ("a2", "a"), ("b1", "b"))
        calls: list[str] = []
        together: list[int] = []

        def handle(message: svc.PulledMessage, context: svc.Context[str]) -> None:
            calls.append(f"{message.id} begins")
            time.sleep(0.03)
            together.append(len([call for call in calls if call.endswith("begins")]) * 2 - len(calls))
            calls.append(f"{message.id} ends")
            if message.id == fails:
                raise svc.RetryMessage(3, "no stock") if fails == "a0" else svc.DeadMessage("never")

        hooks = Ended()
        with self.assertLogs("svc_client"), svc.Worker(source, handle, concurrency=7, poll=0.01, hooks=hooks):
            while len(hooks.results) < 7:
                time.sleep(0.01)
        self.assertGreaterEqual(max(together), 3)
        return [call for call in calls if call.startswith("a")], source.reports

    def test_in_order_one_at_a_time(self) -> None:
        calls, reports = self.handled("")
        self.assertEqual(calls, ["a0 begins", "a0 ends", "a1 begins", "a1 ends", "a2 begins", "a2 ends"])
        self.assertEqual(len(reports), 7)

    def test_none_follows_a_failure(self) -> None:
        calls, reports = self.handled("a0")
        self.assertEqual(calls, ["a0 begins", "a0 ends"])
        self.assertEqual([each for each in reports if each[0] != "done"], [("retry", "a0", 3, "no stock")])

    def test_the_claim_gives_back_what_is_behind_a_lost_message(self) -> None:
        def handle(message: svc.PulledMessage, context: svc.Context[str]) -> None:
            raise svc.RetryMessage(3, "lost")

        source, hooks = Memory(("a0", "a"), ("a1", "a")), Ended()
        with self.assertLogs("svc_client"), svc.Worker(source, handle, concurrency=2, hooks=hooks):
            while len(hooks.results) < 2:
                time.sleep(0.01)
        self.assertEqual(hooks.results, ["lost", "released"])
        self.assertEqual(source.reports, [("retry", "a0", 3, "lost"), ("release", "a1")])

    def test_the_next_follows_a_dead_message(self) -> None:
        calls, reports = self.handled("a1")
        self.assertEqual(calls[2:], ["a1 begins", "a1 ends", "a2 begins", "a2 ends"])
        self.assertEqual([each for each in reports if each[0] != "done"], [("dead", "a1", "never")])


class Helpers(unittest.TestCase):
    ROW = {
        "id": "0190163d-8694-739b-aea5-966c26f8ad91",
        "topic": "orders.paid",
        "payload": '{"id":"o-1"}',
        "key": "o-1",
        "headers": '{"a":"1","b":"2"}',
        "destination": None,
        "deliver_at": None,
        "expires_at": None,
    }

    def test_assert_enqueued(self) -> None:
        tx = svc.Transaction("postgresql", lambda parts, values: [self.ROW])
        row = testing.assert_enqueued(
            tx,
            topic="orders.paid",
            payload={"id": "o-1"},
            json='{"id":"o-1"}',
            headers={"b": "2"},
            id=self.ROW["id"],
            key="o-1",
        )
        self.assertEqual((row["key"], row["payload"], row["headers"]), ("o-1", {"id": "o-1"}, {"a": "1", "b": "2"}))
        with self.assertRaises(AssertionError) as caught:
            testing.assert_enqueued(tx, topic="orders.paid", key="o-2")
        self.assertEqual(
            str(caught.exception),
            "no message of the outbox has topic='orders.paid' key='o-2'\n  topic='orders.paid' key='o-1': key is 'o-1'",
        )
        with self.assertRaisesRegex(TypeError, "no field 'name', expected fields among id, topic"):
            testing.assert_enqueued(tx, name="x")
        with self.assertRaisesRegex(AssertionError, "it has no message"):
            testing.assert_enqueued(recording()[0], topic="t")

    def test_the_statement_of_sql_server(self) -> None:
        tx, statements = recording("sqlserver")
        with self.assertRaises(AssertionError):
            testing.assert_enqueued(tx, topic="t")
        text, _ = statements[0]
        self.assertTrue(text.startswith("SELECT TOP 100 [id] AS [id], "), text)
        self.assertTrue(text.endswith(" FROM [outbox] ORDER BY sequence DESC"), text)

    def test_receiver(self) -> None:
        with testing.Receiver(answer=lambda delivery: 500 if delivery.key == "bad" else 204) as receiver:
            for id, key in (("1", "a"), ("2", "b"), ("1", "a"), ("3", "a"), ("4", "bad")):
                headers = {"X-Message-Id": id, "X-Key": key}
                request = urllib.request.Request(receiver.url + "/path", f'{{"n":{id}}}'.encode(), headers, method="POST")
                try:
                    with urllib.request.urlopen(request) as response:
                        self.assertEqual(response.status, 204)
                except urllib.error.HTTPError as error:
                    self.assertEqual((error.code, key), (500, "bad"))
                    error.close()
            self.assertEqual([each.message_id for each in receiver.wait_for(3)], ["1", "2", "3"])
            self.assertEqual([each.payload for each in receiver.of_key("a")], [{"n": 1}, {"n": 3}])
            self.assertEqual(receiver.duplicates, {"1": 1})
            self.assertEqual((len(receiver.deliveries), receiver.deliveries[0].path), (4, "/path"))
            with self.assertRaisesRegex(AssertionError, "3 messages came in 0.1 s, expected 4"):
                receiver.wait_for(4, 0.1)

    def test_a_service_that_does_not_start(self) -> None:
        program = [sys.executable, "-c", "print('no such folder'); raise SystemExit(3)"]
        with self.assertRaisesRegex(RuntimeError, "dev ended with code 3:\nno such folder"):
            with testing.run_svc_dev(binary=program):
                self.fail()

    def test_a_program_that_does_not_exist(self) -> None:
        expected = r"^/no/svc.js does not exist: set SVC_BIN to the program, such as …/dist/roles/svc\.js$"
        with mock.patch.dict(os.environ, {"SVC_BIN": "/no/svc.js"}), self.assertRaisesRegex(FileNotFoundError, expected):
            with testing.run_svc_dev():
                self.fail()

    @unittest.skipUnless(shutil.which("node"), "node is not installed")
    def test_a_script(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder, "svc.js")
            script.write_text("console.log(process.argv[2]); process.exitCode = 3;")
            with self.assertRaisesRegex(RuntimeError, "ended with code 3:\ndev"):
                with testing.run_svc_dev(binary=os.path.relpath(script)):
                    self.fail()

    @unittest.skipUnless("SVC_BIN" in os.environ, "SVC_BIN is not set")
    def test_run_svc_dev(self) -> None:
        import psycopg

        with testing.Receiver() as receiver:
            config = f"""
database: {{ url: x }}
destinations:
  receiver: {{ baseUrl: "{receiver.url}", path: /orders }}
routes:
  - {{ topicPattern: orders.**, destination: receiver }}
"""
            with testing.run_svc_dev(config) as running:
                with psycopg.connect(running.database_url) as connection:
                    tx = svc.from_psycopg(connection)
                    for n in range(3):
                        svc.enqueue(tx, topic="orders.paid", payload=n, key="o-1", headers={"x-key": "o-1"})
                    testing.assert_enqueued(tx, payload=2, key="o-1")
                receiver.wait_for(3, 30)
                self.assertEqual([each.payload for each in receiver.of_key("o-1")], [0, 1, 2])
                urllib.request.urlopen(running.url + "/health").close()
        with self.assertRaises(OSError):
            urllib.request.urlopen(running.url + "/health")


@unittest.skipUnless(DATABASE_URL, "DATABASE_URL is not set")
class Database(unittest.TestCase):
    def setUp(self) -> None:
        import psycopg

        self.connection = psycopg.connect(DATABASE_URL)
        self.addCleanup(self.connection.close)
        place = '"a:b %s ?"."o""u\\:t::x"'
        for statement in (
            'DROP SCHEMA IF EXISTS "a:b %s ?" CASCADE',
            'CREATE SCHEMA "a:b %s ?"',
            f"CREATE TABLE {place} (LIKE outbox INCLUDING ALL)",
            f'ALTER TABLE {place} RENAME COLUMN payload TO "50% (p0)s :p0"',
            f'ALTER TABLE {place} RENAME COLUMN key TO "$1 [k]"',
            f'ALTER TABLE {place} ALTER COLUMN "50% (p0)s :p0" TYPE jsonb USING NULL',
            f'ALTER TABLE {place} ALTER COLUMN "$1 [k]" TYPE uuid USING NULL',
        ):
            self.connection.execute(statement.encode())
        self.connection.commit()
        self.outbox = svc.Outbox(
            schema="a:b %s ?", table='o"u\\:t::x', columns={"payload": "50% (p0)s :p0", "key": "$1 [k]"}
        )
        self.key = "0190163d-8694-739b-aea5-966c26f8ad91"
        self.fields: dict[str, Any] = {
            "topic": "100 %s :x",
            "payload": {"a": [1, "%s :x ?"]},
            "key": self.key,
            "headers": {"h": "v"},
            "deliver_at": datetime(2031, 1, 1, tzinfo=timezone.utc),
        }

    def check(self, tx: svc.Transaction) -> None:
        id = self.outbox.enqueue(tx, **self.fields)
        self.outbox.enqueue_many(tx, [svc.Message("t", 1), svc.Message("t", 2, key=self.key)])
        match = {name: value for name, value in self.fields.items() if name != "key"}
        row = testing.assert_enqueued(tx, outbox=self.outbox, id=id, **match)
        self.assertEqual(str(row["key"]), self.key)

    async def acheck(self, tx: svc.AsyncTransaction) -> None:
        id = await self.outbox.aenqueue(tx, **self.fields)
        await self.outbox.aenqueue_many(tx, [svc.Message("t", 1), svc.Message("t", 2, key=self.key)])
        match = {name: value for name, value in self.fields.items() if name != "key"}
        row = await testing.aassert_enqueued(tx, outbox=self.outbox, id=id, **match)
        self.assertEqual(str(row["key"]), self.key)

    def test_psycopg(self) -> None:
        from psycopg.rows import namedtuple_row

        self.connection.row_factory = namedtuple_row  # type: ignore[assignment, unused-ignore]
        self.check(svc.from_psycopg(self.connection))
        self.check(svc.from_dbapi(self.connection))

    def test_asyncpg(self) -> None:
        import asyncpg

        async def run() -> None:
            connection: Any = await asyncpg.connect(DATABASE_URL)
            await self.acheck(svc.from_asyncpg(connection))
            await connection.close()

        asyncio.run(run())

    def test_sqlalchemy(self) -> None:
        from sqlalchemy import create_engine
        from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
        from sqlalchemy.orm import Session

        address = DATABASE_URL.partition("://")[2]
        engine = create_engine(f"postgresql+psycopg://{address}")
        with engine.begin() as connection:
            self.check(svc.from_sqlalchemy(connection))
        with Session(engine) as session:
            self.check(svc.from_sqlalchemy(session))
        engine.dispose()

        async def run() -> None:
            for driver in ("asyncpg", "psycopg"):
                engine = create_async_engine(f"postgresql+{driver}://{address}")
                async with AsyncSession(engine) as session:
                    await self.acheck(svc.from_sqlalchemy_async(session))
                await engine.dispose()

        asyncio.run(run())

    def test_a_session_flushes_first(self) -> None:
        from sqlalchemy import create_engine
        from sqlalchemy.orm import Session

        engine = create_engine(f"postgresql+psycopg://{DATABASE_URL.partition('://')[2]}")
        with Session(engine) as session, mock.patch.object(session, "flush") as flush:
            svc.enqueue(svc.from_sqlalchemy(session), topic="t", payload=1)
            flush.assert_called()
        engine.dispose()


if __name__ == "__main__":
    unittest.main()
