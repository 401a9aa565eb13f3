"""Where a shipper's chunks go: over HTTP to a collector, or straight into the one of this process."""

from __future__ import annotations

import http.client
import json
import ssl
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any
from urllib.parse import urlsplit

from goodput_collector.chunks import CONTENT_TYPE, Chunk, encode
from goodput_collector.errors import BusyError, StorageError
from goodput_collector.requests import Asked
from goodput_collector.shipping import NotNowError, Receipt, Taken

TIMEOUT_S = 30.0
_PACK_LEAST_BYTES = 1024
_ANSWER_MAX_BYTES = 64 * 2**20
_PERMANENT = (401, 403, 404, 405, 415)


class HttpSink:
    """Sends to `POST URL/v1/batch`, over one connection that is kept open."""

    def __init__(self, url: str, token: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        """Raises ValueError where the URL is none."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not a collector's address, such as http://collector:9470")
        self._url = url
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._path = f"{parts.path.rstrip('/')}/v1/batch"
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": CONTENT_TYPE}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._connection: http.client.HTTPConnection | None = None

    def send(self, chunks: Sequence[Chunk]) -> Receipt:
        """Sends the chunks in one request. Raises NotNowError; its words say whether waiting is likely to help."""
        body, headers = encode(chunks), dict(self._headers)
        if len(body) >= _PACK_LEAST_BYTES:
            packer = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
            body = packer.compress(body) + packer.flush()
            headers["Content-Encoding"] = "gzip"
        try:
            status, answer, retry = self._exchange(body, headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise NotNowError(f"{self._url} does not answer ({_words(error)})") from error
        told = _object(answer)
        if status != 200:
            said = told.get("error") if isinstance(told.get("error"), str) else f"status {status}"
            raise NotNowError(f"{self._url} refuses: {said}", 60.0 if status in _PERMANENT else retry)
        return _receipt(self._url, told, chunks)

    def close(self) -> None:
        """Closes the connection; the next sending opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _exchange(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes, float | None]:
        connection = self._connection
        if connection is None:
            if self._secure:
                connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=self._timeout_s, context=ssl.create_default_context()
                )
            else:
                connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
            self._connection = connection
        connection.request("POST", self._path, body, headers)
        response = connection.getresponse()
        answer = response.read(_ANSWER_MAX_BYTES)
        if response.will_close:
            self.close()
        try:
            retry = float(response.headers.get("Retry-After", ""))
        except ValueError:
            retry = None
        return response.status, answer, retry


class LocalSink:
    """Hands chunks to the writer of this process."""

    def __init__(self, committer: Any, asked: Callable[[], Sequence[Asked]], *, timeout_s: float = 120.0) -> None:
        """`committer` is a Committer; this module must not load the database for an agent that has none."""
        self._committer = committer
        self._asked = asked
        self._timeout_s = timeout_s

    def send(self, chunks: Sequence[Chunk]) -> Receipt:
        """Has the chunks kept. Raises NotNowError."""
        try:
            answers = self._committer.submit(chunks).result(self._timeout_s)
        except BusyError as error:
            raise NotNowError(str(error), error.retry_after_s) from error
        except (StorageError, FutureTimeoutError) as error:
            raise NotNowError(str(error) or "The collector's disk is slow.") from error
        return Receipt(taken=[Taken(offset_bytes=one.offset_bytes) for one in answers], asked=list(self._asked()))


def _receipt(url: str, told: dict[str, Any], chunks: Sequence[Chunk]) -> Receipt:
    try:
        streams = told["streams"]
        if [one["stream"] for one in streams] != [chunk.stream for chunk in chunks]:
            raise ValueError("other streams")
        taken = [Taken(offset_bytes=None if one["status"] == 429 else int(one["offset"])) for one in streams]
        asked = [Asked.from_json(one) for one in told.get("checkpoint_requests", [])]
    except (KeyError, TypeError, ValueError) as error:
        # A proxy's page, or another program at this address: what it says is no proof that anything was kept.
        raise NotNowError(f"{url} does not answer as a collector does") from error
    return Receipt(taken=taken, asked=asked)


def _object(answer: bytes) -> dict[str, Any]:
    try:
        told = json.loads(answer)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _words(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
