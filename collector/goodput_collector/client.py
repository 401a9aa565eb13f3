"""Questions about runs, to a collector over HTTP or to a database file that no collector holds: the same calls.

client = open_client("http://127.0.0.1:9470")        # or open_client("goodput.duckdb")
for run in client.runs():
    print(run.run, client.report(run.run).goodput_ratio)
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import duckdb
import pyarrow as pa

from goodput_analytics import AnalyticsError, Early, Report, RunSummary, Settings, UnknownRun, runs
from goodput_analytics.advice_run import RunAdvice, advice_from_relations
from goodput_analytics.early import all_read
from goodput_analytics.merged import release
from goodput_analytics.timeouts import DEFAULT_RISK_RATIO
from goodput_collector.compacting import Compacted
from goodput_collector.corrections import NOTE_MOST, WHO_MOST, Act, Cause, Correction, Wish, of_json, read
from goodput_collector.database import open_database
from goodput_collector.errors import BadRequestError, CollectorUnreachableError, GoodputCollectorError
from goodput_collector.keeping import Closed
from goodput_collector.relations import OF_RANKS, ROWS_DEFAULT, Window, select
from goodput_collector.requests import VALID_S, Asked
from goodput_collector.shown import last_told, to_see
from goodput_collector.told import Candidate, cheapest_first, tell

__all__ = [
    "NOTE_MOST",
    "WHO_MOST",
    "Act",
    "Candidate",
    "Cause",
    "Client",
    "Correction",
    "FileClient",
    "GoodputCollectorError",
    "HttpClient",
    "Rows",
    "Wish",
    "open_client",
]

_ARROW = "application/vnd.apache.arrow.stream"
_RUNS_DEFAULT = 100
NAMES_DEFAULT = 10_000
"""Names of runs that are given when nobody says otherwise, and at most by a collector."""
_ASKED_AGAIN = 2
_COMPACT_S = 6 * 3600.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of a relation, and whether there are more than were asked for."""

    table: pa.Table
    more: bool


class Client(Protocol):
    """What can be asked.

    All raise UnknownRun for a run that is not there, BadRequestError for a question that makes no sense, and
    CollectorUnreachableError, DatabaseError or AnalyticsError where there is no answer; each with what to do.
    """

    def runs(self, limit: int = _RUNS_DEFAULT) -> list[RunSummary]:
        """The runs, the one heard from last first."""

    def names(self, limit: int = NAMES_DEFAULT) -> list[str]:
        """The names of the runs, the one heard from last first; nothing is computed. Launches beside the first are not
        among them."""

    def corrections(self, limit: int = _RUNS_DEFAULT) -> list[Correction]:
        """What people corrected, the latest first, what was undone too."""

    def report(self, run: str) -> Report:
        """The breakdown of a run."""

    def advice(self, run: str, *, risk_ratio: float = DEFAULT_RISK_RATIO, at_ranks: Sequence[int] = ()) -> RunAdvice:
        """How often to save and how long to wait, from a run's own record (`goodput_analytics.advice_run.advise`)."""

    def relation(
        self, name: str, run: str, *, from_ns: int | None = None, to_ns: int | None = None, limit: int = ROWS_DEFAULT
    ) -> Rows:
        """Rows of a relation (`goodput_collector.relations.RELATIONS`) that touch the time from `from_ns` to
        `to_ns`, nanoseconds since the epoch."""

    def preemption_candidates(self, limit: int = _RUNS_DEFAULT) -> list[Candidate]:
        """The runs at work, the cheapest to preempt first."""

    def close(self) -> None:
        """Ends it."""


def open_client(where: str | Path, token: str | None = None) -> HttpClient | FileClient:
    """A client of the collector at a URL, or of a database file."""
    text = str(where)
    return HttpClient(text, token) if text.startswith(("http://", "https://")) else FileClient(Path(text))


class HttpClient:
    """Asks a collector. Any thread may use it."""

    def __init__(self, url: str, token: str | None = None, *, timeout_s: float = 60.0) -> None:
        """Raises ValueError where the URL is none."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not a collector's address, such as http://127.0.0.1:9470")
        self._url = url
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._base = parts.path.rstrip("/")
        self._timeout_s = timeout_s
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def runs(self, limit: int = _RUNS_DEFAULT) -> list[RunSummary]:
        """See Client."""
        return [_built(RunSummary, one) for one in self._json(f"/v1/runs?limit={limit}")["runs"]]

    def names(self, limit: int = NAMES_DEFAULT) -> list[str]:
        """See Client."""
        return [str(one["run"]) for one in self._json(f"/v1/run-names?limit={limit}")["runs"]]

    def corrections(self, limit: int = _RUNS_DEFAULT) -> list[Correction]:
        """See Client."""
        return [of_json(one) for one in self._json(f"/v1/corrections?limit={limit}")["corrections"]]

    def correct(self, wish: Wish) -> Correction:
        """Has something corrected (`goodput_collector.corrections.Wish`). Needs the token for writing."""
        body = json.dumps(asdict(wish.checked())).encode()
        answer, _ = self._ask("POST", "/v1/corrections", body=body, run=wish.run)
        return of_json(json.loads(answer))

    def undo(self, id_: str, who: str = "") -> Correction:
        """Undoes a correction. Needs the token for writing."""
        answer, _ = self._ask(
            "POST", f"/v1/corrections/{quote(id_, safe='')}/undo", body=json.dumps({"who": who}).encode()
        )
        return of_json(json.loads(answer))

    def compact(self, before_ns: int | None = None) -> tuple[Closed | None, Compacted]:
        """Has the collector's database copied into a smaller file; what was told before `before_ns` closed first. Needs
        the token for writing."""
        body = json.dumps({"before_ns": before_ns}).encode()
        answer, _ = self._ask("POST", "/v1/compact", body=body, timeout_s=_COMPACT_S)
        told = json.loads(answer)
        closed = None if told["closed"] is None else _built(Closed, told["closed"])
        return closed, _built(Compacted, told["compacted"])

    def report(self, run: str) -> Report:
        """See Client."""
        return _built(Report, self._json(f"/v1/runs/{quote(run, safe='')}/report", run=run))

    def advice(self, run: str, *, risk_ratio: float = DEFAULT_RISK_RATIO, at_ranks: Sequence[int] = ()) -> RunAdvice:
        """See Client."""
        query = urlencode({"risk": repr(risk_ratio), "ranks": ",".join(map(str, at_ranks))})
        return _built(RunAdvice, self._json(f"/v1/runs/{quote(run, safe='')}/advice?{query}", run=run))

    def relation(
        self, name: str, run: str, *, from_ns: int | None = None, to_ns: int | None = None, limit: int = ROWS_DEFAULT
    ) -> Rows:
        """See Client."""
        query = {"run": run, "limit": limit, "from_ns": from_ns, "to_ns": to_ns}
        given = urlencode({key: value for key, value in query.items() if value is not None})
        body, headers = self._ask("GET", f"/v1/relations/{quote(name, safe='')}?{given}", accept=_ARROW, run=run)
        return Rows(table=pa.ipc.open_stream(body).read_all(), more=headers.get("x-goodput-more") == "true")

    def preemption_candidates(self, limit: int = _RUNS_DEFAULT) -> list[Candidate]:
        """See Client."""
        return [_built(Candidate, one) for one in self._json(f"/v1/preemption-candidates?limit={limit}")["candidates"]]

    def request_checkpoint(self, run: str, *, step: int | None = None, valid_s: float = VALID_S) -> Asked:
        """Asks a run for a checkpoint, after `step` or at once: `rec.checkpoint_requested()` turns true there. Nobody
        is asked any more after `valid_s` seconds. Needs the token for writing."""
        body = json.dumps({"step": step, "valid_s": valid_s}).encode()
        answer, _ = self._ask("POST", f"/v1/runs/{quote(run, safe='')}/request-checkpoint", body=body, run=run)
        return Asked.from_json(json.loads(answer))

    def close(self) -> None:
        """See Client."""

    def _json(self, path: str, run: str | None = None) -> Any:
        return json.loads(self._ask("GET", path, run=run)[0])

    def _ask(
        self,
        method: str,
        path: str,
        *,
        accept: str = "application/json",
        body: bytes | None = None,
        run: str | None = None,
        timeout_s: float | None = None,
    ) -> tuple[bytes, Mapping[str, str]]:
        for again in range(_ASKED_AGAIN + 1):
            status, answer, headers = self._exchange(method, path, accept, body, timeout_s or self._timeout_s)
            if status != 503 or again == _ASKED_AGAIN:
                break
            time.sleep(0.2 * (again + 1))
        if status in (200, 202):
            return answer, headers
        said = _said(answer) or f"status {status}"
        if status == 404 and run is not None:
            try:
                known = self.names(1000)
            except (CollectorUnreachableError, BadRequestError):
                known = []
            if run not in known:
                raise UnknownRun(run, known)
        if status in (400, 404, 413):
            raise BadRequestError(said, status=status)
        raise CollectorUnreachableError(f"The collector at {self._url} refuses: {said}")

    def _exchange(
        self, method: str, path: str, accept: str, body: bytes | None, timeout_s: float
    ) -> tuple[int, bytes, Mapping[str, str]]:
        if self._secure:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout_s, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        try:
            connection.request(method, f"{self._base}{path}", body, {**self._headers, "Accept": accept})
            response = connection.getresponse()
            return response.status, response.read(), {key.lower(): value for key, value in response.getheaders()}
        except (OSError, http.client.HTTPException) as error:
            words = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise CollectorUnreachableError(
                f"The collector at {self._url} does not answer ({words}); is `goodput collect` running there?"
            ) from error
        finally:
            connection.close()


class FileClient:
    """Reads a database file that no collector holds. Any thread may use it; one is served at a time.

    "Now" is each run's last event: nobody listens for more.
    """

    def __init__(self, path: Path) -> None:
        """Raises DatabaseError, or DatabaseLockedError while a collector holds the file."""
        self._con = open_database(path, read_only=True)
        self._lock = threading.Lock()
        self._stands: tuple[str, bool] | None = None
        """The run whose relations stand in the connection."""

    def runs(self, limit: int = _RUNS_DEFAULT) -> list[RunSummary]:
        """See Client."""
        with self._lock:
            self._stands = None
            return runs(self._con)[:limit]

    def names(self, limit: int = NAMES_DEFAULT) -> list[str]:
        """See Client."""
        with self._lock:
            release(self._con)
            self._stands = None
            return [one.run for one in to_see(self._con, last_told(self._con))[:limit]]

    def corrections(self, limit: int = _RUNS_DEFAULT) -> list[Correction]:
        """See Client."""
        with self._lock:
            return read(self._con, limit)

    def report(self, run: str) -> Report:
        """See Client."""
        with self._lock:
            self._stands = None
            told = tell(self._con, run, None, Settings())
            self._stands = run, all_read(self._con)
            return told.report

    def advice(self, run: str, *, risk_ratio: float = DEFAULT_RISK_RATIO, at_ranks: Sequence[int] = ()) -> RunAdvice:
        """See Client."""
        with self._lock:
            self._have_stand(run, of_ranks=True)
            return advice_from_relations(self._con, run, risk_ratio=risk_ratio, at_ranks=at_ranks)

    def relation(
        self, name: str, run: str, *, from_ns: int | None = None, to_ns: int | None = None, limit: int = ROWS_DEFAULT
    ) -> Rows:
        """See Client."""
        with self._lock:
            self._have_stand(run, of_ranks=name in OF_RANKS)
            table, more = select(self._con, name, Window(from_ns=from_ns, to_ns=to_ns, limit=limit))
            return Rows(table=table, more=more)

    def preemption_candidates(self, limit: int = _RUNS_DEFAULT) -> list[Candidate]:
        """See Client."""
        found = []
        for one in self.runs(limit):
            with self._lock:
                self._stands = None
                try:
                    told = tell(self._con, one.run, None, Settings())
                except (AnalyticsError, duckdb.Error):
                    continue
            candidate = told.candidate(told.report.as_of_ns)
            if candidate is not None:
                found.append(candidate)
        return cheapest_first(found)

    def close(self) -> None:
        """See Client."""
        self._con.close()

    def _have_stand(self, run: str, *, of_ranks: bool) -> None:
        """Has the relations of this run in the connection: with `of_ranks` made from all rows of ranks."""
        if self._stands != (run, True) and (of_ranks or self._stands != (run, False)):
            self._stands = None
            tell(self._con, run, None, Settings(), early=Early.NONE if of_ranks else Early.READ)
            self._stands = run, all_read(self._con)


def _said(answer: bytes) -> str | None:
    try:
        told = json.loads(answer)
    except (ValueError, RecursionError):
        return None
    error = told.get("error") if isinstance(told, dict) else None
    return error if isinstance(error, str) else None


def _built(kind: type[T], value: Any) -> T:
    """The dataclass that was sent as JSON; fields that this version does not know are left out."""
    hints = typing.get_type_hints(kind)
    assert is_dataclass(kind)
    given = {field.name: _typed(hints[field.name], value[field.name]) for field in fields(kind) if field.name in value}
    return typing.cast(T, kind(**given))


def _typed(hint: Any, value: Any) -> Any:
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if value is None:
        return None
    if origin in (typing.Union, types.UnionType):
        return _typed(next(one for one in inside if one is not type(None)), value)
    if origin is tuple:
        return tuple(_typed(inside[0], one) for one in value)
    if origin in (dict, Mapping):
        # JSON has no keys but strings.
        return {_typed(inside[0], key): _typed(inside[1], one) for key, one in value.items()}
    if isinstance(hint, type) and is_dataclass(hint):
        return _built(hint, value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    return int(value) if hint is int else value
