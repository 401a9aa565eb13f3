"""Nonsense over HTTP: no answer is a failure of the collector's, its memory stays bounded, and no good line is lost.

schemathesis makes requests of what `/openapi.json` says, and of what that forbids; hypothesis makes bodies of bytes.
What the collector would lose or choke on stands in the message when one fails.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import landing_cases
import made_streams
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks
from service_running import Collector

from goodput_collector.chunks import Chunk, encode
from goodput_collector.contract import COUNT_LIMIT, KINDS, TIME_LIMIT_NS, Field, FieldType
from goodput_collector.database import open_database
from goodput_collector.openapi import OPENAPI
from goodput_collector.relations import RELATIONS

OPERATIONS = {
    operation.label: operation
    for operation in (found.ok() for found in schemathesis.openapi.from_dict(OPENAPI).get_all_operations())
}
CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
GROWTH_MAX_MIB = 200
"""Most memory that the requests of one test may leave behind."""
SHORT, LONG = 12, 500


def requests(count: int) -> Callable[[Any], Any]:
    return settings(
        max_examples=count,
        deadline=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with Collector(tmp_path_factory.mktemp("c"), "--no-spool") as running:
        body = encode([Chunk(stream=name, offset_bytes=0, data=data) for name, data in made_streams.streams().items()])
        assert running.post("/v1/batch", body)[0] == 200
        yield running


def rss_mib(collector: Collector) -> int:
    assert collector.process is not None
    status = Path(f"/proc/{collector.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) >> 10


def fuzz(collector: Collector, label: str, count: int) -> None:
    """Requests of one operation: as described, and otherwise; of runs and relations that there are, and others."""
    operation = OPERATIONS[label]
    known: dict[str, Any] = {"run": "by-hand", "stream": "fuzzed"}
    places: list[dict[str, Any] | None] = [None]
    if "{name}" in operation.path:
        places += [{"name": name} for name in RELATIONS]
    elif "{" in operation.path:
        places += [{key: value for key, value in known.items() if f"{{{key}}}" in operation.path}]
    cases = st.one_of(
        operation.as_strategy(generation_mode=mode, path_parameters=place, query=query)
        for mode in GenerationMode
        for place in places
        for query in ([None] if place is None or "name" not in place else [None, {"run": "by-hand"}])
    )

    @requests(count * (4 if len(places) > 2 else 1))
    @given(cases)
    def send(case: schemathesis.Case) -> None:
        response = case.call(base_url=collector.url, timeout=30)
        case.validate_response(response, checks=CHECKS)

    before = rss_mib(collector)
    send()
    assert collector.get("/healthz") == {"status": "ok"}
    assert rss_mib(collector) < before + GROWTH_MAX_MIB


@pytest.mark.parametrize("label", OPERATIONS)
def test_no_request_is_too_much_for_it(collector: Collector, label: str) -> None:
    fuzz(collector, label, SHORT)


@pytest.mark.soak
@pytest.mark.parametrize("label", OPERATIONS)
def test_no_request_is_too_much_for_it_for_long(collector: Collector, label: str) -> None:
    fuzz(collector, label, LONG)


@st.composite
def wishes(draw: st.DrawFn) -> dict[str, Any]:
    """Corrections of runs that there are, with values that fit and others."""
    runs = st.sampled_from(["by-hand", "other", "third", ""])
    words = st.none() | st.text(max_size=8) | st.sampled_from(["planned", "user", "\ud800", "x" * 5000])
    wish: dict[str, Any] = {"act": draw(st.sampled_from(["rename", "merge", "delete", "incident", "?"]))}
    wish["run"] = draw(runs)
    for name, values in (
        ("to", runs | words),
        ("attempt", st.integers(-1, 3) | words),
        ("abort_ns", st.none() | st.integers(-1, 2**65)),
        ("cause", words),
        ("note", words),
        ("who", words),
        ("id", st.sampled_from(["a", "b", "c" * 12]) | words),
    ):
        if draw(st.booleans()):
            wish[name] = draw(values)
    return wish


def correct(collector: Collector, count: int) -> None:
    """Any corrections in any order; then all that stand are undone, and all is as it was."""
    for run in ("other", "third"):
        data = made_streams.steps(f"of-{run}", 30, run)
        assert collector.post(f"/v1/streams/of-{run}?offset=0", data)[0] in (200, 409)
    before = collector.get("/v1/runs/by-hand/report")["gpu_s"]

    @requests(count)
    @given(wishes(), st.integers(0, 3))
    def send(wish: dict[str, Any], then: int) -> None:
        status, answer = collector.post("/v1/corrections", json.dumps(wish).encode())
        assert status < 500, answer
        if status == 200 and then == 0:
            assert collector.post(f"/v1/corrections/{answer['id']}/undo", b"{}")[0] == 200
        for path in ("/v1/runs", "/v1/run-names", "/v1/runs/by-hand/report", "/v1/runs/other/report", "/metrics"):
            status, told, _ = collector.ask(path)
            assert status < 500, (path, told)

    send()
    while standing := [one for one in collector.get("/v1/corrections")["corrections"] if one["undone_ns"] is None]:
        for one in standing:
            assert collector.post(f"/v1/corrections/{one['id']}/undo", b"{}")[0] == 200
    assert collector.get("/v1/runs/by-hand/report")["gpu_s"] == before


def test_no_correction_is_too_much_for_it(collector: Collector) -> None:
    correct(collector, SHORT)


@pytest.mark.soak
def test_no_correction_is_too_much_for_it_for_long(collector: Collector) -> None:
    correct(collector, LONG)


def values(field: Field) -> st.SearchStrategy[Any]:
    """What fits a field, at its ends above all."""
    if field.type is FieldType.INTEGER:
        low, high = field.low, field.high - 1
        near = st.integers(low, min(high, low + 9))
        return near | near | st.sampled_from([low, high, high // 2, landing_cases.T0_NS if high > 2**60 else low])
    if field.type is FieldType.NUMBER:
        return st.sampled_from([0, -1.5, 1e300, 5e-324])
    if field.type is FieldType.FLAG:
        return st.booleans()
    if field.type is FieldType.OBJECT:
        return st.sampled_from([{}, {"team": "a"}, {"x": {"y": []}}])
    return st.sampled_from(["a", "b", "", "é\0", "checkpoint", "evaluation", "finished", "x" * 2000])


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    """An event that the contract allows, however little sense it makes."""
    kind = draw(st.sampled_from(list(KINDS.values())))
    event: dict[str, Any] = {"kind": kind.name, "seq": draw(st.integers(0, 30) | st.just(COUNT_LIMIT - 1))}
    event["ts_ns"] = draw(st.sampled_from([0, 1, landing_cases.T0_NS, TIME_LIMIT_NS - 1]) | st.integers(0, 99))
    for field in kind.fields:
        if field.required or draw(st.booleans()):
            event[field.name] = draw(values(field))
    return event


def odd_runs(collector: Collector, count: int) -> None:
    """Runs of events that the contract allows and nobody would tell: all that can be asked of them has an answer."""
    numbers = itertools.count()

    @requests(count)
    @given(st.lists(st.tuples(st.sampled_from("abc"), events()), min_size=1, max_size=25))
    def send(told: list[tuple[str, dict[str, Any]]]) -> None:
        run = f"odd-{next(numbers)}"
        data = b"".join(
            landing_cases.line({"run": run, "source": f"{run}-{source}", **event}) + b"\n" for source, event in told
        )
        status, answer = collector.post(f"/v1/streams/{run}?offset=0", data)
        assert (status, answer) == (200, {"offset": len(data)})
        for path in (
            f"/v1/runs/{run}/report",
            f"/v1/runs/{run}/advice",
            f"/v1/relations/ledger_intervals?run={run}",
            f"/v1/relations/view_timeline?run={run}",
        ):
            status, body, _ = collector.ask(path)
            assert status < 500, (path, body, data)

    send()
    assert collector.ask("/v1/runs?limit=20")[0] == 200
    assert collector.ask("/v1/preemption-candidates?limit=20")[0] == 200


def test_no_event_is_too_odd_for_it(collector: Collector) -> None:
    odd_runs(collector, SHORT // 4)


@pytest.mark.soak
def test_no_event_is_too_odd_for_it_for_long(collector: Collector) -> None:
    odd_runs(collector, LONG)


rubbish = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [b"", b"\0" * 9, b"{" * 3000, b"[" * 100_000, b"9" * 5000, b'{"kind":"step",}', b"\xff\xfe", b"null"]
    ),
    st.builds(lambda size: b"x" * size, st.integers(0, 200_000)),
    st.builds(
        lambda event, at, byte: (line := landing_cases.line(event))[: at % len(line)] + byte + line[at % len(line) :],
        events().map(lambda event: {"run": "mutants", "source": "mutant", **event}),
        st.integers(0, 500),
        st.binary(min_size=0, max_size=2),
    ),
)


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[bytes | None], list[int]]:
    """Lines of a stream (None: a good one), and the sizes of the pieces in which it is sent."""
    lines = draw(st.lists(st.none() | rubbish.map(lambda data: data.replace(b"\n", b"")), max_size=12))
    return [*lines, None], draw(st.lists(st.integers(1, 400) | st.integers(1, 2**20), min_size=1, max_size=8))


def send_pieces(collector: Collector, name: str, data: bytes, sizes: list[int]) -> None:
    """Sends a stream in pieces of those sizes, several in a request; a piece that holds no whole line grows."""
    given_sizes = itertools.cycle(sizes)
    at, least = 0, 1
    while at < len(data):
        chunks = []
        end = at
        for _ in range(3):
            begin, end = end, min(len(data), end + max(least, next(given_sizes)))
            chunks.append(Chunk(stream=name, offset_bytes=begin, data=data[begin:end]))
        # One from where the stream never stands must change nothing.
        elsewhere = at - 1 if at else len(data) + 1
        chunks.insert(1, Chunk(stream=name, offset_bytes=elsewhere, data=b"{}\n" + data[at:end]))
        status, answer = collector.post("/v1/batch", encode(chunks))
        assert status == 200, answer
        stands = max(one["offset"] for one in answer["streams"])
        assert stands >= at
        at, least = stands, 1 if stands > at else 4 * (end - at)


def keep_good_lines(folder: Path, count: int) -> None:
    """Good lines among rubbish, in pieces cut anywhere: each is there once, with what it said."""
    sent: dict[tuple[str, int], int] = {}
    numbers = itertools.count()
    with Collector(folder, "--no-spool") as collector:

        @requests(count)
        @given(st.lists(streams(), min_size=1, max_size=3))
        def send(told: list[tuple[list[bytes | None], list[int]]]) -> None:
            for lines, sizes in told:
                source = f"good-{next(numbers)}"
                whole = []
                for seq, line in enumerate(lines):
                    if line is None:
                        sent[source, seq] = landing_cases.T0_NS + seq
                        event = {"run": "good", "source": source, "seq": seq, "kind": "progress"}
                        line = landing_cases.line({**event, "ts_ns": sent[source, seq]})
                    whole.append(line + b"\n")
                send_pieces(collector, source, b"".join(whole), sizes)

        before = rss_mib(collector)
        send()
        assert rss_mib(collector) < before + GROWTH_MAX_MIB
        assert collector.get("/readyz") == {"status": "ready"}
    con = open_database(collector.db, read_only=True)
    found = con.execute(
        "SELECT source, seq, ts_ns FROM ev_progress JOIN sources USING (source_id) WHERE starts_with(source, 'good-')"
    ).fetchall()
    con.close()
    assert sorted(found) == sorted((source, seq, ts_ns) for (source, seq), ts_ns in sent.items())


def test_no_good_line_is_lost_among_rubbish(tmp_path: Path) -> None:
    keep_good_lines(tmp_path, SHORT // 4)


@pytest.mark.soak
def test_no_good_line_is_lost_among_rubbish_for_long(tmp_path: Path) -> None:
    keep_good_lines(tmp_path, LONG)
