"""For the tests of an application: its outbox, a receiver in memory, and a real service."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from json import loads
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence, Union

from .outbox import AsyncTransaction, Dialect, Outbox, Rows, Transaction, checked, quoted

_NEWEST = 100


def assert_enqueued(tx: Transaction, *, outbox: Optional[Outbox] = None, **match: Any) -> dict[str, Any]:
    """Asserts that the outbox holds a message with these fields among its newest 100, in a transaction or committed.

    `payload` is compared as a value and `json` as text, `headers` must be among those of the message; every other field of
    `Message` must be equal. Returns the newest such message, by the names of the fields.
    """
    outbox, dialect = outbox or Outbox(), checked(tx, Transaction).dialect
    rows = [row for schema in outbox.schemas for row in tx.query([_select(outbox, dialect, schema)], [])]
    return _found(rows, match)


async def aassert_enqueued(tx: AsyncTransaction, *, outbox: Optional[Outbox] = None, **match: Any) -> dict[str, Any]:
    """`assert_enqueued` for an asynchronous driver."""
    outbox, dialect = outbox or Outbox(), checked(tx, AsyncTransaction).dialect
    rows = [row for schema in outbox.schemas for row in await tx.query([_select(outbox, dialect, schema)], [])]
    return _found(rows, match)


def _select(outbox: Outbox, dialect: Dialect, schema: Optional[str]) -> str:
    columns = ", ".join(f"{quoted(dialect, name)} AS {quoted(dialect, field)}" for field, name in outbox.columns.items())
    top, limit = (f"TOP {_NEWEST} ", "") if dialect == "sqlserver" else ("", f" LIMIT {_NEWEST}")
    return f"SELECT {top}{columns} FROM {outbox.place(dialect, schema)} ORDER BY sequence DESC{limit}"


def _found(rows: Rows, match: Mapping[str, Any]) -> dict[str, Any]:
    messages = [_shown(row) for row in rows]
    for message in messages:
        if not _differences(message, match):
            return message
    expected = " ".join(f"{field}={value!r}" for field, value in match.items())
    lines = [f"no message of the outbox has {expected}"]
    for message in messages[:10]:
        names = " ".join(f"{field}={message[field]!r}" for field in ("topic", "key"))
        lines.append(f"  {names}: {'; '.join(_differences(message, match))}")
    if not messages:
        lines.append("  it has no message")
    elif len(messages) > 10:
        lines.append(f"  and {len(messages) - 10} older messages")
    raise AssertionError("\n".join(lines))


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    payload, headers = row["payload"], row["headers"]
    json = payload if isinstance(payload, str) else None
    return {
        **row,
        "id": str(row["id"]).lower(),
        "json": json,
        "payload": payload if json is None else _parsed(json),
        "headers": loads(headers) if isinstance(headers, str) else headers or {},
    }


def _parsed(json: str) -> Any:
    try:
        return loads(json)
    except ValueError:
        return json


def _differences(message: Mapping[str, Any], match: Mapping[str, Any]) -> list[str]:
    found = []
    for field, expected in match.items():
        if field not in message:
            raise TypeError(f"a message has no field {field!r}, expected fields among {', '.join(message)}")
        actual = message[field]
        is_same = actual == expected
        if field == "headers":
            is_same = all(actual.get(name) == value for name, value in (expected or {}).items())
        elif field == "id":
            is_same = actual == str(expected).lower()
        if not is_same:
            found.append(f"{field} is {actual!r}")
    return found


@dataclass(frozen=True)
class Delivery:
    """What the service has sent."""

    message_id: str
    """`x-message-id`."""
    key: Optional[str]
    path: str
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: bytes

    @property
    def payload(self) -> Any:
        return loads(self.body)


class Receiver:
    """An HTTP server on 127.0.0.1 that records deliveries, within a `with` statement.

    `key_header` names the header that has the key of a message; the application sets it. `answer` gives the status for a
    delivery, by default 204. After another status than 2xx the service tries again, and the delivery is not recorded.
    """

    def __init__(self, *, key_header: str = "x-key", answer: Callable[[Delivery], int] = lambda delivery: 204) -> None:
        self._deliveries: list[Delivery] = []
        self._changed = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", 0)))
                message_id, key = headers.get("x-message-id", ""), headers.get(key_header.lower())
                delivery = Delivery(message_id, key, self.path, headers, body)
                status = answer(delivery)
                if 200 <= status < 300:
                    receiver._add(delivery)
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            do_PUT = do_POST

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Receiver:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _add(self, delivery: Delivery) -> None:
        with self._changed:
            self._deliveries.append(delivery)
            self._changed.notify_all()

    @property
    def deliveries(self) -> list[Delivery]:
        """All of them, in the order of their arrival."""
        with self._changed:
            return list(self._deliveries)

    def wait_for(self, messages: int, timeout: float = 10.0) -> list[Delivery]:
        """Waits until this many different messages have arrived, and returns the first delivery of each, in order."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._firsts()) >= messages, timeout):
                raise AssertionError(f"{len(self._firsts())} messages came in {timeout} s, expected {messages}")
            return self._firsts()

    def of_key(self, key: str) -> list[Delivery]:
        """The first delivery of each message of a key, in order."""
        with self._changed:
            return [delivery for delivery in self._firsts() if delivery.key == key]

    @property
    def duplicates(self) -> dict[str, int]:
        """How often each message came again, by its id."""
        counts: dict[str, int] = {}
        for delivery in self.deliveries:
            counts[delivery.message_id] = counts.get(delivery.message_id, -1) + 1
        return {message_id: count for message_id, count in counts.items() if count > 0}

    def _firsts(self) -> list[Delivery]:
        firsts: dict[str, Delivery] = {}
        for delivery in self._deliveries:
            firsts.setdefault(delivery.message_id, delivery)
        return list(firsts.values())


@dataclass(frozen=True)
class SvcDev:
    """A service that runs."""

    url: str
    database_url: str
    """`postgres://…` of its own PostgreSQL."""
    output: list[str]
    """The lines that it has printed so far."""


@contextmanager
def run_svc_dev(
    config: Optional[str] = None, *, binary: Union[str, Sequence[str], None] = None, env: Optional[Mapping[str, str]] = None,
    timeout: float = 90.0,
) -> Iterator[SvcDev]:  # fmt: skip
    """Runs `svc dev` with its own PostgreSQL in a folder of its own, until the end of the `with` statement.

    `config` is the text of `svc.yml`, by default the sample. `binary` is the program, or the program with its first
    arguments; a `.js` runs in Node.js. By default it is the variable `SVC_BIN`, else `svc`. The variables of `env` are added
    to those of this process.
    """
    program = binary or os.environ.get("SVC_BIN") or "svc"
    command = [program] if isinstance(program, str) else list(program)
    path = shutil.which(command[0], os.F_OK)
    if path is None:
        raise FileNotFoundError(f"{command[0]} does not exist: set SVC_BIN to the program, such as …/dist/roles/svc.js")
    # The service starts in another folder, and its `.js` may not be executable.
    command[:1] = [*(["node"] if path.endswith(".js") else []), os.path.abspath(path)]
    with tempfile.TemporaryDirectory(prefix="svc-dev-") as folder:
        # The service starts PostgreSQL as another user if this user is root, who must reach the folder.
        os.chmod(folder, 0o755)
        if config is not None:
            Path(folder, "svc.yml").write_text(config, "utf-8")
        port = _free_port()
        variables = {**os.environ, "SVC_SERVER_HTTPPORT": str(port), **(env or {})}
        process = subprocess.Popen(
            [*command, "dev"], cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, encoding="utf-8", errors="replace",
        )  # fmt: skip
        output: list[str] = []
        ready = threading.Event()
        reader = threading.Thread(target=_read, args=(process, output, ready), daemon=True)
        reader.start()
        try:
            if not ready.wait(timeout) or not any("svc is running" in line for line in output):
                how = f"ended with code {process.wait(10)}" if ready.is_set() else f"is not ready after {timeout} s"
                raise RuntimeError(f"{' '.join(command)} dev {how}:\n" + "\n".join(output[-20:]))
            database_url = Path(folder, ".svc", "database-url").read_text("utf-8").strip()
            yield SvcDev(f"http://127.0.0.1:{variables['SVC_SERVER_HTTPPORT']}", database_url, output)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            reader.join(5)


def _read(process: subprocess.Popen[str], output: list[str], ready: threading.Event) -> None:
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            output.append(line.rstrip("\n"))
            if "svc is running" in line:
                ready.set()
    ready.set()


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port
