"""Messages for the outbox, and the checks that a message passes before its statement."""

from __future__ import annotations

import hashlib
import importlib
import re
import secrets
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from json import dumps, loads
from typing import Any, Literal, Mapping, Optional, Union
from uuid import UUID

try:
    _trace: Any = importlib.import_module("opentelemetry.trace")
except ImportError:
    _trace = None

ErrorCode = Literal["topic", "payload", "key", "headers", "destination", "time", "id", "options"]
Instant = Union[datetime, str]


class EnqueueError(ValueError):
    """A message was refused before its statement: the caller's transaction is unchanged.

    `code` is the field that the database would refuse, or `options` for a table or a cell.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code: ErrorCode = code


@dataclass(frozen=True)
class Message:
    """A message for the outbox. Give exactly one of `payload` and `json`."""

    topic: str
    """Selects the route, such as `orders.paid`; at most 1000 characters."""
    payload: Any = ...
    """Any value that JSON can hold, `None` included; it is written by `json.dumps`."""
    json: Optional[str] = None
    """JSON text, which is sent byte for byte."""
    key: Optional[str] = None
    """Messages of one key are delivered in order; at most 800 characters. Without a key a message has no order."""
    headers: Optional[Mapping[str, str]] = None
    destination: Optional[str] = None
    """The name of a destination, whatever the routes say."""
    deliver_at: Optional[Instant] = None
    """Not before this instant: a `datetime` with a time zone, or ISO 8601 text."""
    expires_at: Optional[Instant] = None
    """Not after this instant."""
    id: Union[str, UUID, None] = None
    """By default a new UUID of version 7. Receivers de-duplicate by it."""


Row = dict[str, Optional[str]]
"""A message as its row has it, by the names of the fields."""


def row_of(message: Message) -> Row:
    """Raises `EnqueueError` for what the database would refuse."""
    if not isinstance(message.topic, str) or not message.topic.strip():
        raise EnqueueError("topic", f"the topic is {message.topic!r}, expected a text that is not blank")
    _check("topic", message.topic, 1000)
    _check("key", "" if message.key is None else message.key, 800)
    _check("destination", "" if message.destination is None else message.destination, 200)
    id = new_id() if message.id is None else str(message.id)
    if not _UUID.fullmatch(id):
        raise EnqueueError("id", f"the id is {id!r}, expected a UUID")
    times = {name: _instant(name, getattr(message, name)) for name in ("deliver_at", "expires_at")}
    texts = {"id": id, "topic": message.topic, "key": message.key, "destination": message.destination}
    return {**texts, **times, "payload": _payload_of(message), "headers": _headers_of(message.headers)}


def _check(code: ErrorCode, text: object, most: Optional[int] = None) -> None:
    if not isinstance(text, str):
        raise EnqueueError(code, f"the {code} is of type {type(text).__name__}, expected str")
    refused = _REFUSED.search(text)
    if refused:
        found = "a NUL" if refused[0] == "\0" else "half of a surrogate pair"
        raise EnqueueError(code, f"the {code} holds {found}, which no database stores")
    # As the columns of SQL Server and the other clients count: a character beyond U+FFFF is two.
    if most is not None and (length := len(text.encode("utf-16-le")) // 2) > most:
        raise EnqueueError(code, f"the {code} has {length} characters (UTF-16), at most {most} fit")


def _payload_of(message: Message) -> str:
    if (message.payload is ...) == (message.json is None):
        raise EnqueueError(
            "payload", f"{'neither' if message.json is None else 'both'} of payload and json given, expected one"
        )
    _check("payload", "" if message.json is None else message.json)
    try:
        if message.json is None:
            return json_of(message.payload)
        # Only the syntax counts: numbers stay texts, of any length.
        loads(message.json, parse_int=str, parse_float=str, parse_constant=_no_json)
        return message.json
    except (TypeError, ValueError, RecursionError) as error:
        raise EnqueueError("payload", f"the payload is no JSON: {error}") from error


def _no_json(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def json_of(value: object) -> str:
    """Compact JSON, with half of a surrogate pair escaped."""
    text = dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _REFUSED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _headers_of(headers: Optional[Mapping[str, str]]) -> Optional[str]:
    if headers is not None and not isinstance(headers, Mapping):
        raise EnqueueError("headers", f"the headers are of type {type(headers).__name__}, expected a mapping")
    all_headers = dict(headers or {})
    for name, value in all_headers.items():
        _check("headers", name)
        _check("headers", value)
    # The active span, if the API of OpenTelemetry is installed.
    span = _trace and _trace.get_current_span().get_span_context()
    if span and span.is_valid and "traceparent" not in map(str.lower, all_headers):
        all_headers["traceparent"] = f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"
    return None if headers is None and not all_headers else json_of(all_headers)


def _instant(field: str, value: Optional[Instant]) -> Optional[str]:
    if value is None:
        return None
    try:
        instant = value if isinstance(value, datetime) else datetime.fromisoformat(re.sub("[zZ]$", "+00:00", value))
        if instant.utcoffset() is None:
            raise ValueError("no time zone")
        return instant.astimezone(timezone.utc).isoformat()
    except (TypeError, ValueError, OverflowError) as error:
        raise EnqueueError("time", f"{field} is {value!r}, expected a time and its zone: {error}") from error


_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_REFUSED = re.compile("[\0\ud800-\udfff]")

_last = 0
_last_lock = threading.Lock()


def new_id() -> str:
    """A UUID of version 7 (RFC 9562), larger than the ones before it in this process."""
    global _last
    # 48 bits of time, and 74 at random: the bits of a UUID without its version and variant.
    drawn = time.time_ns() // 1_000_000 << 74 | secrets.randbits(74)
    with _last_lock:
        _last = drawn if drawn > _last else _last + 1
        bits = _last
    high, low = bits >> 62, bits & (1 << 62) - 1
    return str(UUID(int=high >> 12 << 80 | 7 << 76 | (high & 0xFFF) << 64 | 2 << 62 | low))


def cell_of(key: Optional[str], cells: int) -> int:
    """The cell of a key among `cells`, from 0, as the service chooses it. Without a key: the first."""
    return 0 if key is None else int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") % cells
