"""The typed client says the same of a collector and of the file that it leaves."""

from pathlib import Path

import made_streams
import pytest
from service_running import Collector
from typer.testing import CliRunner

from goodput_analytics import Report, RunState, UnknownRun
from goodput_collector.client import open_client
from goodput_collector.commands import COMMANDS
from goodput_collector.database import open_database
from goodput_collector.errors import BadRequestError, CollectorUnreachableError, DatabaseLockedError
from goodput_collector.relations import RELATIONS


def live_run() -> dict[str, bytes]:
    """A run that goes on: two ranks whose last save is some steps ago."""
    told = {}
    for name, data in made_streams.streams().items():
        if name.startswith("a0"):
            before_stop = data[: data.rindex(b'{"kind":"stop"')]
            told[f"live-{name}"] = before_stop.replace(b'"by-hand"', b'"live"').replace(b'"a0-', b'"live-')
    return told


def without_moment(report: Report) -> dict[str, object]:
    body = report.as_json()
    del body["as_of_ns"]
    return body


def test_http_and_file_say_the_same(tmp_path: Path) -> None:
    with Collector(tmp_path, "--no-spool") as collector:
        for name, data in made_streams.streams().items():
            collector.post(f"/v1/streams/{name}?offset=0", data)
        client = open_client(collector.url)
        over_http = client.report("by-hand")
        assert over_http.state is RunState.FINISHED and over_http.attempts[0].end_cause == "crash"
        advice = client.advice("by-hand", risk_ratio=0.05, at_ranks=[3, 4096])
        assert advice.timeout is not None and advice.saves is not None
        for wrong in ("risk=2", "risk=x", "ranks=0", "ranks=1,x"):
            status, said, _ = collector.ask(f"/v1/runs/by-hand/advice?{wrong}")
            assert status == 400 and b"make no sense" in said
        with pytest.raises(UnknownRun):
            client.advice("by-hnad")
        relations = {name: client.relation(name, "by-hand") for name in RELATIONS}
        limited = client.relation("ledger_intervals", "by-hand", limit=2)
        assert limited.more and limited.table.num_rows == 2
        runs = client.runs()
        with pytest.raises(UnknownRun, match="by-hand"):
            client.report("by-hnad")
        with pytest.raises(BadRequestError, match="no relation of that name"):
            client.relation("passwords", "by-hand")
        with pytest.raises(BadRequestError, match="limit"):
            client.relation("steps", "by-hand", limit=-1)
        with pytest.raises(DatabaseLockedError):
            open_client(collector.db)
    with pytest.raises(CollectorUnreachableError, match="goodput collect"):
        client.report("by-hand")
    file = open_client(collector.db)
    assert without_moment(file.report("by-hand")) == without_moment(over_http)
    assert file.advice("by-hand", risk_ratio=0.05, at_ranks=[3, 4096]) == advice
    for name, rows in relations.items():
        assert file.relation(name, "by-hand").table.equals(rows.table), name
    assert file.runs() == runs
    with pytest.raises(UnknownRun):
        file.relation("steps", "nobody")
    with pytest.raises(BadRequestError):
        file.relation("passwords", "by-hand")
    file.close()


def test_candidates_are_those_at_work_with_what_they_would_lose(tmp_path: Path) -> None:
    with Collector(tmp_path, "--no-spool") as collector:
        for name, data in {**made_streams.streams(), **live_run()}.items():
            status, _ = collector.post(f"/v1/streams/{name}?offset=0", data)
            assert status == 200
        # By the collector's clock this run has been silent for months.
        assert {one.run: one.state for one in open_client(collector.url).runs()}["live"] is RunState.LOST
        assert open_client(collector.url).preemption_candidates() == []
    file = open_client(collector.db)
    (candidate,) = file.preemption_candidates()
    report = file.report("live")
    assert (candidate.run, candidate.gpus, candidate.at_risk_gpu_s) == ("live", 2, report.at_risk_gpu_s)
    # Ten steps of a second on two GPUs since the save after step 20.
    assert candidate.at_risk_gpu_s == pytest.approx(20)
    assert candidate.since_durable_s == pytest.approx(10)
    file.close()


def test_a_token_is_sent(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("t" * 20)
    with Collector(tmp_path, "--no-spool", "--token-file", tmp_path / "t") as collector:
        assert open_client(collector.url, "t" * 20).runs() == []
        with pytest.raises(CollectorUnreachableError, match="needs a token"):
            open_client(collector.url).runs()


def test_a_file_of_an_ingest_can_be_asked(tmp_path: Path) -> None:
    con = open_database(tmp_path / "x.duckdb")
    con.close()
    client = open_client(tmp_path / "x.duckdb")
    assert client.runs() == [] and client.preemption_candidates() == []
    client.close()


def test_the_commands_ask_a_collector_too(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("t" * 20)
    runner = CliRunner()

    def say(*words: str) -> str:
        done = runner.invoke(COMMANDS, list(words))
        return str(done.exit_code) + done.output

    with Collector(tmp_path, "--no-spool", "--token-file", tmp_path / "t") as collector:
        for name, data in made_streams.streams().items():
            collector.post(f"/v1/streams/{name}?offset=0", data, Authorization="Bearer " + "t" * 20)
        there = ("--url", collector.url, "--token-file", str(tmp_path / "t"))
        asked = {words: say(*words, *there) for words in (("report",), ("report", "by-hand"), ("advise", "by-hand"))}
        assert say("report", "by-hnad", *there).startswith("1goodput: no run 'by-hnad' in http://")
        assert "needs a token" in say("advise", "by-hand", "--url", collector.url)
        page = tmp_path / "r.html"
        assert say("report", "by-hand", "--html", str(page), *there).startswith("0")
        assert "<svg" in page.read_text() or "by-hand" in page.read_text()
    for words, said in asked.items():
        in_file = say(*words, "--db", str(collector.db))
        # In a report's first line stands the moment: a collector has gone on listening.
        after = 1 if words[-1] == "by-hand" and words[0] == "report" else 0
        assert said.startswith("0") and in_file.splitlines()[after:] == said.splitlines()[after:]
    assert "with --url" in say("report", "--token-file", str(tmp_path / "t"))


def test_a_file_that_one_names_beats_the_collector_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = str(tmp_path / "x.duckdb")
    for name, data in made_streams.streams().items():
        (tmp_path / f"{name}.jsonl").write_bytes(data)
    runner = CliRunner()

    def say(*words: str) -> str:
        done = runner.invoke(COMMANDS, list(words))
        return str(done.exit_code) + done.output

    assert say("ingest", str(tmp_path), "--db", db).startswith("0")
    monkeypatch.setenv("GOODPUT_URL", "http://127.0.0.1:1")
    for words in (("report",), ("report", "by-hand"), ("advise", "by-hand"), ("correct", "list"), ("compact",)):
        assert say(*words, "--db", db).startswith("0"), words
        # Only what one names oneself: where both come from the environment, the collector is asked.
        monkeypatch.setenv("GOODPUT_DB", db)
        assert "127.0.0.1:1 does not answer" in say(*words), words
        assert "127.0.0.1:2 does not answer" in say(*words, "--db", db, "--url", "http://127.0.0.1:2"), words
        monkeypatch.delenv("GOODPUT_DB")
