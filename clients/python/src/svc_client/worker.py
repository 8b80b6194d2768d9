"""Takes messages out of the inbox, and calls a handler for each."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from json import loads
from typing import AbstractSet, Any, Callable, Generic, Literal, Mapping, Optional, Protocol, Sequence, TypeVar

_logger = logging.getLogger("svc_client")

Result = Literal["done", "retry", "dead", "lost", "released"]
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class PulledMessage:
    """A received message."""

    id: str
    aggregate_id: Optional[str]
    event_type: Optional[str]
    idempotency_key: str
    """Unique in its source."""
    correlation_id: Optional[str]
    attempt: int
    """Claims so far, this claim included."""
    headers: Mapping[str, str]
    json: str
    """The text that was received; over HTTP, a text that is no JSON comes as a JSON string."""

    @property
    def payload(self) -> Any:
        """`json`, parsed; the text itself if it is no JSON."""
        try:
            return loads(self.json)
        except ValueError:
            return self.json


@dataclass(frozen=True)
class Claim:
    token: str
    messages: Sequence[PulledMessage]
    """Oldest first."""


class PullSource(Protocol[T_co]):
    """Where messages come from: `SqlSource` or `HttpSource`. `T_co` is the handler's transaction, `None` over HTTP.

    Times are in seconds.
    """

    def claim(self, most: int, lease: float) -> Claim: ...

    def renew(self, claim: Claim, ids: Sequence[str], lease: float) -> AbstractSet[str]:
        """Returns the ids that are still held."""

    def handled(self, claim: Claim, id: str, handle: Callable[[T_co], None]) -> bool:
        """Calls `handle`, and acknowledges in its transaction. False if the claim was lost: nothing is written."""

    def retry(self, claim: Claim, id: str, delay: float, reason: str) -> Result:
        """The message comes again after `delay`, or is dead; later ones of its aggregate are given back, unless it is lost."""

    def dead(self, claim: Claim, id: str, reason: str) -> bool:
        """Ends the message. False if only the service can: the worker calls `retry`."""

    def release(self, claim: Claim, ids: Sequence[str]) -> None:
        """Gives back what is left of the claim."""


class DeadMessage(Exception):
    """Raised by a handler: the message can never be handled. The later messages of its aggregate follow."""


class RetryMessage(Exception):
    """Raised by a handler: the message comes again after this time, in seconds."""

    def __init__(self, delay: float, reason: str) -> None:
        super().__init__(reason)
        self.delay = delay


_Later = Literal["held", "released", "left"]


class Hooks:
    """For metrics and logs: override what you need."""

    def claimed(self, messages: Sequence[PulledMessage]) -> None:
        """Messages were claimed."""

    def ended(self, message: PulledMessage, result: Result, seconds: float) -> None:
        """A message ended, after `seconds` in its handler."""

    def failed(self, error: Exception) -> None:
        """A claim, renewal or result failed; the worker tries again. By default this is a warning in the log."""
        _logger.warning("the worker continues after an error: %s", error, exc_info=error)


@dataclass(frozen=True)
class Context(Generic[T]):
    """What a handler gets beside its message."""

    tx: T
    """Over SQL the connection whose transaction acknowledges the message."""
    cancelled: threading.Event
    """Set when the lease is lost or over, or a stop does not wait any longer: nothing of the handler is committed then."""


@dataclass
class _Own:
    """What the worker knows of a message that it holds."""

    message: PulledMessage
    cancelled: threading.Event = field(default_factory=threading.Event)
    is_lost: bool = False


@dataclass(eq=False)
class _Held:
    claim: Claim
    open: dict[str, _Own]
    renewed_at: float


class Worker(Generic[T]):
    """Calls `handler` for messages of a source, in threads. Times are in seconds.

    Use it in a `with` statement, which starts and stops it. `concurrency` is the most messages at a time. `retry_delay`
    gives the wait before a message whose handler failed comes again, by its attempt from 1 on: by default 1 s, doubled up to
    a minute. `poll` is the time between two claims that find nothing, `stop_timeout` the time for handlers at a stop.
    """

    def __init__(
        self, source: PullSource[T], handler: Callable[[PulledMessage, Context[T]], object], *, concurrency: int = 1,
        lease: float = 30.0, retry_delay: Callable[[int], float] = lambda attempt: min(2.0 ** min(attempt - 1, 6), 60.0),
        poll: float = 0.5, stop_timeout: float = 30.0, hooks: Optional[Hooks] = None,
    ) -> None:  # fmt: skip
        self._source, self._handler, self._concurrency, self._lease = source, handler, concurrency, lease
        self._retry_delay, self._poll, self._stop_timeout = retry_delay, poll, stop_timeout
        self._hooks = hooks or Hooks()
        self._stopping = threading.Event()
        self._loop = threading.Thread(target=self._claim_all, name="svc-worker", daemon=True)
        # Guards what follows, and the open messages of each claim; notified when a message or a claim ends.
        self._changed = threading.Condition()
        self._held: list[_Held] = []
        self._busy = 0

    def start(self) -> Worker[T]:
        """Begins to claim, in threads that end with the process. A worker starts once."""
        self._loop.start()
        return self

    __enter__ = start

    def wait(self) -> None:
        """Blocks until the worker is stopped, or until a signal handler raises."""
        # In steps, because a wait without a limit delays signals on Windows.
        while not self._stopping.wait(1.0):
            pass

    def stop(self) -> None:
        """Claims no more, lets handlers end, and gives back the rest. Returns when nothing runs; not for a handler."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        if self._loop.is_alive():
            self._loop.join()
        with self._changed:
            if not self._changed.wait_for(lambda: not self._held, self._stop_timeout):
                for own in [own for held in self._held for own in held.open.values()]:
                    own.cancelled.set()
                self._changed.wait_for(lambda: not self._held)

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _claim_all(self) -> None:
        wait = self._poll
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping.is_set() or self._busy < self._concurrency)
                free = self._concurrency - self._busy
            if self._stopping.is_set():
                return
            asked_at = time.monotonic()
            try:
                claim = self._source.claim(free, self._lease)
                wait = 0.0 if claim.messages else self._poll
                if claim.messages:
                    self._hook(self._hooks.claimed, claim.messages)
                    # If the claim waited longer than a lease for its messages, their first renewal has a third of the lease.
                    claimed_at = max(asked_at, time.monotonic() - self._lease * 2 / 3)
                    self._begin(_Held(claim, {message.id: _Own(message) for message in claim.messages}, claimed_at))
            except Exception as error:
                self._hook(self._hooks.failed, error)
                wait = min(max(wait, self._poll) * 2, 10.0)
            self._stopping.wait(wait)

    def _begin(self, held: _Held) -> None:
        with self._changed:
            # First, because the system may have no thread left.
            threading.Thread(target=self._handle_all, args=(held,), name="svc-claim", daemon=True).start()
            self._held.append(held)
            self._busy += len(held.open)

    def _handle_all(self, held: _Held) -> None:
        """The thread of a claim: starts a thread for each aggregate, and renews until the last of them ends."""
        chains: dict[tuple[Optional[str], str], list[PulledMessage]] = {}
        for message in held.claim.messages:
            aggregate = message.aggregate_id
            chains.setdefault((aggregate, message.id if aggregate is None else ""), []).append(message)
        threads = [threading.Thread(target=self._handle_chain, args=(held, chain), daemon=True) for chain in chains.values()]
        for thread in threads:
            thread.start()
        due = held.renewed_at + self._lease / 3
        for thread in threads:
            while thread.is_alive():
                thread.join(max(0.0, due - time.monotonic()))
                if time.monotonic() >= due:
                    self._renew(held)
                    due = max(due + self._lease / 3, time.monotonic())
        left = list(held.open.values())
        ids = [own.message.id for own in left if not own.is_lost]
        if ids:
            try:
                self._source.release(held.claim, ids)
            except Exception as error:
                self._hook(self._hooks.failed, error)
        for own in left:
            self._end(held, own.message, "lost" if own.is_lost else "released", 0.0)
        with self._changed:
            self._held.remove(held)
            self._changed.notify_all()

    def _handle_chain(self, held: _Held, chain: Sequence[PulledMessage]) -> None:
        """The thread of an aggregate: in order, up to a message that is not handled; the claim gives back what is left."""
        later: _Later = "held"
        for message in chain:
            own = held.open[message.id]
            if later == "released":
                self._end(held, message, "released", 0.0)
            elif later == "left" or own.is_lost or self._stopping.is_set():
                return
            else:
                later = self._handle(held, own)

    def _handle(self, held: _Held, own: _Own) -> _Later:
        """Returns the state of the later messages of the aggregate."""
        message, started_at = own.message, time.monotonic()

        def work(tx: T) -> None:
            self._handler(message, Context(tx, own.cancelled))
            if own.cancelled.is_set():
                raise InterruptedError("the message was cancelled")

        result: Result = "lost"
        later: _Later = "left"
        try:
            if self._source.handled(held.claim, message.id, work):
                result, later = "done", "held"
        # `asyncio.CancelledError` and `SystemExit` of a handler too: else the message would come again at once, without end.
        except BaseException as error:
            if own.cancelled.is_set() and not own.is_lost:
                # It is given back with the rest of the claim.
                return "left"
            if not own.is_lost:
                result, later = self._refuse(held.claim, message, error)
        self._end(held, message, result, time.monotonic() - started_at)
        return later

    def _refuse(self, claim: Claim, message: PulledMessage, error: BaseException) -> tuple[Result, _Later]:
        """Reports that the handler failed."""
        # A text that every database stores, as long as the service stores it.
        reason = _text_of(error).replace("\0", "\ufffd").encode("utf-8", "replace").decode()[:2000]
        try:
            if isinstance(error, DeadMessage) and self._source.dead(claim, message.id, reason):
                return "dead", "held"
            if not isinstance(error, (DeadMessage, RetryMessage)):
                _logger.warning("the handler of message %s failed: %s", message.id, reason, exc_info=error)
            delay = error.delay if isinstance(error, RetryMessage) else self._retry_delay(message.attempt)
            result = self._source.retry(claim, message.id, delay, reason)
            return result, "left" if result == "lost" else "released"
        except Exception as failure:
            # Its lease ends, and it comes again.
            self._hook(self._hooks.failed, failure)
            return "lost", "left"

    def _renew(self, held: _Held) -> None:
        ids = [id for id, own in list(held.open.items()) if not own.is_lost]
        if not ids:
            return
        sent_at, kept = time.monotonic(), set[str]()
        over_at = held.renewed_at + self._lease

        def renew() -> None:
            try:
                kept.update(self._source.renew(held.claim, ids, self._lease))
                held.renewed_at = sent_at
            except Exception as error:
                self._hook(self._hooks.failed, error)

        # In a thread, because the source may answer after the end of the lease, or never.
        renewal = threading.Thread(target=renew, daemon=True)
        try:
            renewal.start()
            renewal.join(max(0.0, over_at - sent_at))
            if renewal.is_alive():
                raise TimeoutError("the lease ended before the answer to its renewal")
        except Exception as error:
            self._hook(self._hooks.failed, error)
        # Until the lease is over, the next renewal may succeed.
        if held.renewed_at == sent_at or time.monotonic() >= over_at:
            with self._changed:
                for id, own in held.open.items():
                    if id not in kept:
                        own.is_lost = True
                        own.cancelled.set()

    def _end(self, held: _Held, message: PulledMessage, result: Result, seconds: float) -> None:
        with self._changed:
            del held.open[message.id]
            self._busy -= 1
            self._changed.notify_all()
        self._hook(self._hooks.ended, message, result, seconds)

    def _hook(self, hook: Callable[..., None], *given: object) -> None:
        try:
            hook(*given)
        except Exception:
            _logger.exception("the hook %s failed", hook.__name__)


def _text_of(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
