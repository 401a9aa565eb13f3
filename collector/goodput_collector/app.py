"""The HTTP face of the collector: each route in a few lines over the parts that do the work."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Any

import duckdb
import pyarrow as pa
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from goodput_analytics import AnalyticsError, UnknownRun
from goodput_analytics.advice_run import checked_ranks, checked_risk
from goodput_analytics.timeouts import DEFAULT_RISK_RATIO
from goodput_collector.access import Access
from goodput_collector.chunks import BODY_MAX_BYTES, Answer, Chunk, check_offset, check_stream, decode
from goodput_collector.committer import Committer
from goodput_collector.compacting import Compacted
from goodput_collector.corrections import WHO_MOST, Act, as_json, wish_of
from goodput_collector.errors import BadRequestError, BusyError, StorageError
from goodput_collector.exposition import OPENMETRICS, TEXT, wants_openmetrics
from goodput_collector.keeping import Closed
from goodput_collector.metrics_board import Board
from goodput_collector.openapi import OPENAPI
from goodput_collector.pace import Pace
from goodput_collector.relations import ROWS_DEFAULT, Window
from goodput_collector.reports import Reports
from goodput_collector.requests import VALID_S, CheckpointRequests
from goodput_collector.store import Store
from goodput_collector.unpack import unpack

ARROW = "application/vnd.apache.arrow.stream"
RUNS_DEFAULT = 100
RUNS_MAX = 1_000
NAMES_MAX = 10_000
_VALID_MAX_S = 7 * 86_400.0
_INTEGER_DIGITS = 19

Endpoint = Callable[[Request], Awaitable[Response]]


class CollectorApp:
    """What the routes share."""

    def __init__(
        self,
        *,
        store: Store,
        committer: Committer,
        reports: Reports,
        requests: CheckpointRequests,
        access: Access,
        pace: Pace,
        board: Board,
    ) -> None:
        self._store = store
        self._committer = committer
        self._reports = reports
        self._requests = requests
        self._access = access
        self._pace = pace
        self._board = board

    def starlette(self) -> Starlette:
        """The application."""
        writes, reads = self._guarded(self._access.may_write), self._guarded(self._access.may_read)
        return Starlette(
            routes=[
                # The one that is asked for hundreds of times a second is looked at first.
                Route("/v1/batch", writes(self._batch), methods=["POST"]),
                Route("/healthz", _plain(self._healthz), methods=["GET"]),
                Route("/readyz", _plain(self._readyz), methods=["GET"]),
                Route("/metrics", reads(self._metrics), methods=["GET"]),
                Route("/openapi.json", reads(self._openapi), methods=["GET"]),
                Route("/v1/streams/{stream}", writes(self._offset), methods=["GET"]),
                Route("/v1/streams/{stream}", writes(self._append), methods=["POST"]),
                Route("/v1/runs", reads(self._runs), methods=["GET"]),
                Route("/v1/runs/{run:path}/report", reads(self._report), methods=["GET"]),
                Route("/v1/runs/{run:path}/advice", reads(self._advice), methods=["GET"]),
                Route("/v1/runs/{run:path}/request-checkpoint", writes(self._request_checkpoint), methods=["POST"]),
                Route("/v1/run-names", reads(self._names), methods=["GET"]),
                Route("/v1/corrections", reads(self._corrections), methods=["GET"]),
                Route("/v1/corrections", writes(self._correct), methods=["POST"]),
                Route("/v1/compact", writes(self._compact), methods=["POST"]),
                Route("/v1/corrections/{id}/undo", writes(self._undo), methods=["POST"]),
                Route("/v1/relations/{name}", reads(self._relation), methods=["GET"]),
                Route("/v1/preemption-candidates", reads(self._candidates), methods=["GET"]),
            ],
            exception_handlers={HTTPException: _http_error},
        )

    def _guarded(self, may: Callable[[str | None], bool]) -> Callable[[Endpoint], Endpoint]:
        """Endpoints that only those with the right token reach."""

        def guard(endpoint: Endpoint) -> Endpoint:
            async def guarded(request: Request) -> Response:
                if not may(request.headers.get("authorization")):
                    return _error(
                        401, "This needs a token: send Authorization: Bearer TOKEN.", {"WWW-Authenticate": "Bearer"}
                    )
                return await endpoint(request)

            return _plain(guarded)

        return guard

    async def _healthz(self, _: Request) -> Response:
        trouble = self._committer.trouble
        # A full disk is no reason to kill the collector; a writer that has ended is.
        return _json({"status": "ok" if trouble is None else "degraded"}, 200 if self._committer.alive else 503)

    async def _readyz(self, _: Request) -> Response:
        trouble = self._committer.trouble
        if trouble is not None:
            return _json({"status": "not ready", "error": trouble}, 503)
        return _json({"status": "ready"})

    async def _metrics(self, request: Request) -> Response:
        # On the loop itself: it is short, and must not wait behind reports for a thread.
        openmetrics = wants_openmetrics(request.headers.get("accept", ""))
        return Response(self._board.page(openmetrics), headers={"Content-Type": OPENMETRICS if openmetrics else TEXT})

    async def _openapi(self, _: Request) -> Response:
        return _json(OPENAPI)

    async def _offset(self, request: Request) -> Response:
        name = check_stream(request.path_params["stream"])
        return _json({"offset": await run_in_threadpool(self._store.read_offset, name)})

    async def _append(self, request: Request) -> Response:
        name = check_stream(request.path_params["stream"])
        offset = _integer(request, "offset")
        if offset is None:
            raise BadRequestError("Say where the bytes begin: POST /v1/streams/NAME?offset=N.")
        final = request.query_params.get("final", "false")
        if final not in ("true", "false"):
            raise BadRequestError('"final" is true or false.')
        body = await _body(request)
        chunk = Chunk(stream=name, offset_bytes=check_offset(offset), data=body, final=final == "true")
        wait_s = self._pace.wait_s(name, len(body))
        if wait_s > 0:
            return _error(429, "This stream comes too fast; slow down.", {"Retry-After": _whole(wait_s)})
        (answer,) = await self._keep([chunk])
        return _json({"offset": answer.offset_bytes}, 200 if answer.fits else 409)

    async def _batch(self, request: Request) -> Response:
        chunks = decode(await _body(request))
        waits = self._pace.waits_s([(chunk.stream, len(chunk.data)) for chunk in chunks])
        kept = iter(await self._keep([chunk for chunk, wait in zip(chunks, waits, strict=True) if wait <= 0]))
        told: list[dict[str, Any]] = []
        for chunk, wait_s in zip(chunks, waits, strict=True):
            if wait_s > 0:
                told.append({"stream": chunk.stream, "status": 429, "retry_after_s": wait_s})
            else:
                answer = next(kept)
                status = 200 if answer.fits else 409
                told.append({"stream": chunk.stream, "status": status, "offset": answer.offset_bytes})
        asked = [one.as_json() for one in self._requests.now()]
        return _json({"streams": told, "checkpoint_requests": asked})

    async def _keep(self, chunks: Sequence[Chunk]) -> list[Answer]:
        if not chunks:
            return []
        return await asyncio.wrap_future(self._committer.submit(chunks))

    async def _runs(self, request: Request) -> Response:
        limit = _limit(request, RUNS_DEFAULT, RUNS_MAX)
        found = await run_in_threadpool(self._reports.runs, limit)
        return _json({"schema": 1, "runs": [asdict(one) for one in found]})

    async def _names(self, request: Request) -> Response:
        found = await run_in_threadpool(self._reports.names, _limit(request, NAMES_MAX, NAMES_MAX))
        return _json({"runs": [{"run": one.run, "last_event_ns": one.told_ns or None} for one in found]})

    async def _corrections(self, request: Request) -> Response:
        found = await run_in_threadpool(self._reports.corrections, _limit(request, RUNS_DEFAULT, NAMES_MAX))
        return _json({"corrections": [as_json(one) for one in found]})

    async def _correct(self, request: Request) -> Response:
        wish = wish_of(_object(await _body(request, 64 * 1024))).checked()
        place = None
        if wish.act is Act.INCIDENT and wish.attempt is not None:
            place = await run_in_threadpool(self._reports.incident_place, wish.run, wish.attempt, wish.abort_ns)
        made = await asyncio.wrap_future(self._committer.call(lambda store: store.correct(wish, place, time.time_ns())))
        return _json(as_json(made))

    async def _compact(self, request: Request) -> Response:
        before_ns = _object(await _body(request, 4096)).get("before_ns")
        if before_ns is not None and (not isinstance(before_ns, int) or isinstance(before_ns, bool)):
            raise BadRequestError('"before_ns" is a whole number.')
        if before_ns is not None and not 0 <= before_ns <= time.time_ns():
            raise BadRequestError('"before_ns" is a moment that has passed, in nanoseconds since the epoch.')

        def work(store: Store) -> tuple[Closed | None, Compacted]:
            closed = None if before_ns is None else store.retain(before_ns)
            return closed, store.compact()

        closed, done = await asyncio.wrap_future(self._committer.call(work))
        return _json({"closed": None if closed is None else asdict(closed), "compacted": asdict(done)})

    async def _undo(self, request: Request) -> Response:
        who = _object(await _body(request, 4096)).get("who", "")
        if not isinstance(who, str) or len(who) > WHO_MOST:
            raise BadRequestError(f'"who" is a text of at most {WHO_MOST} characters.')
        id_ = request.path_params["id"]
        made = await asyncio.wrap_future(self._committer.call(lambda store: store.undo(id_, who, time.time_ns())))
        return _json(as_json(made))

    async def _report(self, request: Request) -> Response:
        report = await run_in_threadpool(self._reports.report, request.path_params["run"])
        return _json(report.as_json())

    async def _advice(self, request: Request) -> Response:
        risk = request.query_params.get("risk")
        try:
            risk_ratio = DEFAULT_RISK_RATIO if risk is None else checked_risk(float(risk))
            at_ranks = checked_ranks(int(word) for word in request.query_params.get("ranks", "").split(",") if word)
        except ValueError as error:
            raise BadRequestError(f"risk or ranks make no sense: {error}.") from error
        told = await run_in_threadpool(self._reports.advice, request.path_params["run"], risk_ratio, at_ranks)
        return _json(asdict(told))

    async def _relation(self, request: Request) -> Response:
        run = request.query_params.get("run")
        if run is None:
            raise BadRequestError("Say of which run: ?run=NAME.")
        limit = _integer(request, "limit")
        window = Window(
            from_ns=_integer(request, "from_ns"),
            to_ns=_integer(request, "to_ns"),
            limit=ROWS_DEFAULT if limit is None else limit,
        )
        name = request.path_params["name"]
        table, more = await run_in_threadpool(self._reports.relation, name, run, window)
        headers = {"X-Goodput-More": "true" if more else "false"}
        if "application/json" in request.headers.get("accept", ""):
            body = await run_in_threadpool(_rows, name, table, more)
            return Response(body, media_type="application/json", headers=headers)
        return Response(await run_in_threadpool(_arrow, table), media_type=ARROW, headers=headers)

    async def _candidates(self, request: Request) -> Response:
        found = await run_in_threadpool(self._reports.candidates, _limit(request, RUNS_DEFAULT, RUNS_MAX))
        return _json({"candidates": [asdict(one) for one in found]})

    async def _request_checkpoint(self, request: Request) -> Response:
        run = request.path_params["run"]
        step, valid_s = _asked(await _body(request, 4096))
        # A name that nobody runs under would be asked in vain.
        await run_in_threadpool(self._reports.check_run, run)
        asked = self._requests.new(run, step=step, valid_s=valid_s)
        await asyncio.wrap_future(self._committer.call(lambda store: store.keep_asked(asked, time.time_ns())))
        self._requests.ask(asked)
        return _json(asked.as_json(), 202)


def _plain(endpoint: Endpoint) -> Endpoint:
    """The endpoint with its errors told in one line of JSON; what should not happen is told without its inside."""

    async def told(request: Request) -> Response:
        try:
            return await endpoint(request)
        except BadRequestError as error:
            return _error(error.status, str(error))
        except UnknownRun as error:
            return _error(404, str(error))
        except BusyError as error:
            return _error(503, str(error), {"Retry-After": _whole(error.retry_after_s)})
        except StorageError as error:
            return _error(503, f"{error} Nothing is lost: send it again.", {"Retry-After": "1"})
        except duckdb.Error:
            return _error(503, "The database does not answer now; try again.", {"Retry-After": "1"})
        except AnalyticsError as error:
            return _error(500, str(error))
        except asyncio.CancelledError:
            # Only the end of the collector cancels a request.
            return _error(503, "The collector is stopping; send it again.", {"Retry-After": "1"})
        except ClientDisconnect:
            return Response(status_code=400)

    return told


async def _http_error(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    said = {404: "There is nothing at this address; see /openapi.json.", 405: "This address has no such method."}
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    return _error(status, said.get(status, "This cannot be done."), headers)


async def _body(request: Request, most_bytes: int = BODY_MAX_BYTES) -> bytes:
    """The body, unpacked. Raises BadRequestError; no more than allowed is ever held."""
    too_much = BadRequestError(f"The body has more than {most_bytes:,} bytes; send less at a time.", status=413)
    said = request.headers.get("content-length", "0")
    if said.isdecimal() and len(said) < _INTEGER_DIGITS and int(said) > most_bytes:
        raise too_much
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most_bytes:
            raise too_much
        parts.append(part)
    body = b"".join(parts)
    encoding = request.headers.get("content-encoding", "")
    if not encoding:
        return body
    if len(body) < 64 * 1024:
        return unpack(body, encoding, most_bytes)
    return await run_in_threadpool(unpack, body, encoding, most_bytes)


def _object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body; one that is empty says nothing."""
    try:
        told = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise BadRequestError("The body is empty, or a JSON object; see /openapi.json.")
    return told


def _asked(body: bytes) -> tuple[int | None, float]:
    """What a request for a checkpoint says: after which step, and for how long it stands, in seconds."""
    told = _object(body)
    step, valid_s = told.get("step"), told.get("valid_s", VALID_S)
    if step is not None:
        check_offset(step)
    if not isinstance(valid_s, int | float) or isinstance(valid_s, bool) or not 0 < valid_s <= _VALID_MAX_S:
        raise BadRequestError(f'"valid_s" is a number of seconds up to {_VALID_MAX_S:.0f}.')
    return step, float(valid_s)


def _integer(request: Request, name: str) -> int | None:
    """A whole number of the query; None where it is left out."""
    text = request.query_params.get(name)
    if text is None:
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < _INTEGER_DIGITS + 1):
        raise BadRequestError(f"{name!r} is a whole number.")
    value = int(text)
    if abs(value) >= 2**63:
        raise BadRequestError(f"{name!r} is a whole number below 2^63.")
    return value


def _limit(request: Request, default: int, most: int) -> int:
    limit = _integer(request, "limit")
    if limit is None:
        return default
    if not 1 <= limit <= most:
        raise BadRequestError(f"A limit is from 1 to {most:,}.")
    return limit


def _arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _rows(name: str, table: pa.Table, more: bool) -> bytes:
    return json.dumps({"relation": name, "more": more, "rows": table.to_pylist()}, default=str).encode()


def _json(value: Any, status: int = 200) -> Response:
    body = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    return Response(body, status_code=status, media_type="application/json")


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    body = json.dumps({"error": " ".join(message.split())}).encode()
    return Response(body, status_code=status, media_type="application/json", headers=headers)


def _whole(seconds: float) -> str:
    return str(max(1, round(seconds + 0.5)))
