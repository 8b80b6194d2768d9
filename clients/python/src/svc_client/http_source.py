"""Messages over HTTP, for every database."""

from __future__ import annotations

import re
import ssl
from json import dumps, loads
from typing import AbstractSet, Any, Callable, Mapping, Optional, Sequence
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from .worker import Claim, PulledMessage, Result, milliseconds

_ANSWER = 10.0
"""The longest wait for an answer, in seconds."""


class HttpSource:
    """Messages of a source with `consumption: pull`, from the pull routes at `url`, such as `http://svc:8080/pull`.

    `headers` has the credentials of `inbox.pull.auth`, such as `{"authorization": "Bearer …"}`. `wait` is the longest wait of
    the server for a message, and so of a stop, in seconds, at most 60; `context` the settings of TLS.

    The service decides when a message is dead (`inbox.pull.maxAttempts`): a `DeadMessage` is an attempt with its reason,
    which comes again after the ordinary delay. A message that is given back is an attempt too.
    """

    def __init__(
        self, url: str, source: str, *, headers: Optional[Mapping[str, str]] = None, wait: float = 5.0,
        context: Optional[ssl.SSLContext] = None,
    ) -> None:  # fmt: skip
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"the url is {url!r}, expected http://… or https://…")
        self._url = f"{url.rstrip('/')}/{quote(source, safe='')}"
        self._headers = {"content-type": "application/json", **(headers or {})}
        self._source, self._wait, self._context = source, wait, context

    def claim(self, most: int, lease: float) -> Claim:
        body = {"max": most, "leaseMs": milliseconds(lease), "waitMs": milliseconds(self._wait)}
        # A claim whose client hangs up may take messages all the same: a stop waits for it.
        rest, payloads = _payloads_of(self._post("claim", body, self._wait + _ANSWER))
        answer = loads(rest)
        return Claim(answer["claimToken"] or "", [_message_of(*each) for each in zip(answer["messages"], payloads)])

    def renew(self, claim: Claim, ids: Sequence[str], lease: float) -> AbstractSet[str]:
        return set(loads(self._settle("extend", claim, ids, leaseMs=milliseconds(lease)))["extended"])

    def handled(self, claim: Claim, id: str, handle: Callable[[None], None]) -> bool:
        handle(None)
        return id in loads(self._settle("ack", claim, [id]))["acknowledged"]

    def retry(self, claim: Claim, id: str, delay: float, reason: str) -> Result:
        delay_ms = milliseconds(min(max(delay, 0.0), 86_400.0))  # The service takes no longer one.
        answer = loads(self._settle("nack", claim, [id], delayMs=delay_ms, error=reason))
        return "dead" if id in answer["dead"] else "lost" if id in answer["lost"] else "retry"

    def dead(self, claim: Claim, id: str, reason: str) -> bool:
        return False

    def release(self, claim: Claim, ids: Sequence[str]) -> None:
        self._settle("nack", claim, ids)

    def _settle(self, operation: str, claim: Claim, ids: Sequence[str], **fields: object) -> str:
        return self._post(operation, {"claimToken": claim.token, "ids": ids, **fields}, _ANSWER)

    def _post(self, operation: str, body: Mapping[str, object], timeout: float) -> str:
        request = Request(f"{self._url}/{operation}", dumps(body).encode(), self._headers, method="POST")
        try:
            with urlopen(request, timeout=timeout, context=self._context) as answer:
                return str(answer.read(), "utf-8")
        except HTTPError as error:
            with error:
                text = error.read().decode("utf-8", "replace")
            # 409: none of the messages is held any more; the body says so.
            if error.code == 409:
                return text
            raise RuntimeError(f"{operation} of {self._source}: {error.code} {text[:200]}, expected status 200") from None


def _payloads_of(text: str) -> tuple[str, list[str]]:
    """The answer of a claim without its payloads, and their texts: a payload nested too deeply harms no other message."""
    rest, payloads, depth, copied, start = "", [], 0, 0, 0
    for token in _TOKEN.finditer(text):
        kind = token[0][-1]
        depth += (kind in "[{") - (kind in "]}")
        if start and (kind, depth) in ((",", 3), ("}", 2)):
            payloads.append(text[start : token.start()].strip())
            rest += text[copied:start] + "null"
            copied, start = token.start(), 0
        elif kind == ":" and depth == 3:
            start = token.end()
    return rest + text[copied:], payloads


def _message_of(message: Mapping[str, Any], json: str) -> PulledMessage:
    names = ("id", "aggregateId", "eventType", "idempotencyKey", "correlationId", "attempt", "headers")
    return PulledMessage(*[*(message[name] for name in names), json])


_TOKEN = re.compile(r'"payload"\s*:|"[^"\\]*(?:\\.[^"\\]*)*"|[][{},]', re.DOTALL)
