"""`goodput ingest` and `goodput report`, from event files to what a person or a program reads."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import made_events
import pytest

from goodput.cli import main


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in an empty folder, and find no database but the one they are given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GOODPUT_DB", raising=False)


@pytest.fixture
def events(tmp_path: Path) -> Path:
    return made_events.write(tmp_path / "by-hand.jsonl", made_events.by_hand())


@pytest.fixture
def db(events: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    path = str(tmp_path / "run.duckdb")
    assert main(["ingest", str(events), "--db", path]) == 0
    capsys.readouterr()
    return path


def failure(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("goodput: ")
    assert err.count("\n") == 1
    return err.removeprefix("goodput: ").rstrip("\n")


def test_ingest_says_what_it_took_and_what_to_do_next(events: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = len(made_events.by_hand())
    assert main(["ingest", str(events), "--db", "run.duckdb"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{count} events read; {count} new; run by-hand.\nNext: goodput report by-hand --db run.duckdb\n"
    assert err == ""


def test_ingest_names_the_runs_and_the_next_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*runs: str, db: str = "run.duckdb") -> list[str]:
        lines = [json.dumps({"kind": "progress", "run": r, "source": r, "seq": 0, "ts_ns": 1}) for r in runs]
        (tmp_path / f"{len(runs)}.jsonl").write_text("".join(line + "\n" for line in lines) + "x\n")
        assert main(["ingest", f"{len(runs)}.jsonl", "--db", db]) == (0 if runs else 1)
        Path(db).unlink()
        return capsys.readouterr().out.splitlines()

    read = "1 event read; 1 new; 1 line rejected (not_json 1)"
    assert said("my run", db="my file") == [
        f"{read}; run my run.", "Next: goodput report 'my run' --db 'my file'"
    ]  # fmt: skip
    assert said("--json") == [f"{read}; run --json.", "Next: goodput report --db run.duckdb"]
    long = "r" * 5000
    assert len(said(long)[0]) < 200 and said(long)[1] == "Next: goodput report --db run.duckdb"
    several = said(*"abcdefghij")
    assert several[0].endswith("; runs a, b, c, d, e, f, g, h and 2 more.")
    assert several[1] == "Next: goodput report --db run.duckdb"
    assert said() == [
        "0 events read; 0 new; 1 line rejected (not_json 1); no run.",
        "No event was found there. `goodput doctor` names the folder that the recorder writes to; "
        "what a collector took is in its own database.",
    ]


def test_ingest_again_takes_nothing_twice(events: Path, db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ingest", str(events), "--db", db, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["new"] == 0

    copy = made_events.write(events.with_name("copy.jsonl"), made_events.by_hand())
    assert main(["ingest", str(copy), "--db", db]) == 0
    assert f"{len(made_events.by_hand())} duplicates" in capsys.readouterr().out


def test_ingest_counts_what_it_could_not_take(events: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with events.open("a") as file:
        file.write("no event\nnor this\n")
    assert main(["ingest", str(events), "--json"]) == 0
    assert sum(json.loads(capsys.readouterr().out)["rejected"].values()) == 2
    assert main(["report", "by-hand"]) == 0
    assert "2 lines rejected" in " ".join(capsys.readouterr().out.split())


def test_ingest_takes_the_event_files_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    lines = made_events.by_hand()
    made_events.write(spool / "a.jsonl", lines[:40])
    made_events.write(spool / "b.jsonl", lines[40:])
    (spool / "a.lock").write_text("not events")
    assert main(["ingest", str(spool), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["new"] == len(lines)


def test_ingest_of_a_spool_takes_what_a_killed_rank_had_only_in_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = (
        "import goodput, os, signal\n"
        "rec = goodput.start(run='killed')\n"
        "for step in (1, 2, 3):\n    rec.begin_step(step)\n    rec.end_step()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    spool = tmp_path / "spool"
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"GOODPUT_SPOOL": str(spool)}, check=False)
    assert main(["ingest", str(spool)]) == 0
    capsys.readouterr()
    assert main(["report", "killed", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["attempts"][0]["last_step"] == 3


@pytest.mark.parametrize("watched", [True, False])
def test_a_progress_bar_is_drawn_for_a_person_and_kept_out_of_the_output(watched: bool, events: Path) -> None:
    person, command = pty.openpty()
    args = [sys.executable, "-m", "goodput", "ingest", str(events), "--json"]
    done = subprocess.run(
        args, stdout=subprocess.PIPE, stderr=command if watched else subprocess.PIPE, check=True,
        env=os.environ | {"TERM": "xterm"},
    )  # fmt: skip
    os.close(command)
    seen = b""
    while watched and select.select([person], [], [], 5)[0]:
        try:
            seen += os.read(person, 4096)
        except OSError:  # how Linux tells that nobody writes to a terminal any more
            break
    os.close(person)
    assert ("━".encode() in seen) == watched
    assert done.stderr == (None if watched else b"")
    assert json.loads(done.stdout)["new"] == len(made_events.by_hand())


def test_report_as_json_is_the_figures_checked_by_hand(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "by-hand", "--db", db, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    report = json.loads(out)
    assert (report["schema"], report["run"], report["state"]) == (1, "by-hand", "finished")
    assert report["allocated_gpu_s"] == 146
    spent = {category: gpu_s for category, gpu_s in report["gpu_s"].items() if gpu_s}
    assert spent == {"productive": 80, "startup": 39.2, "checkpoint": 6, "rework": 20.8}
    (incident,) = report["incidents"]
    assert (incident["cause"], incident["lost_steps"], incident["detection_s"]) == ("crash", 10, 0.4)
    assert (incident["rework_gpu_s"], incident["restart_gpu_s"], incident["hang_gpu_s"]) == (20.8, 19.2, 0)


def test_the_page_says_what_was_checked_by_hand() -> None:
    page = (Path(__file__).parents[2] / "docs" / "ACCOUNTING.md").read_text()
    for figure in ("| 146 |", "| 39.2 |", "| 6 |", "| 20.8 |", "| 80 |", "54.8 %", "19.2 of restart"):
        assert figure in page


def test_report_for_a_person(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "by-hand", "--db", db]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "\x1b" not in out
    assert out.splitlines()[1].startswith("goodput 54.8 %   held 146.0 GPU-seconds")


def test_report_without_a_run_lists_the_runs(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--db", db]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:6] == ["by-hand", "finished", "0.04", "54.8", "%", "2"]
    assert main(["report", "--db", db, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(one["run"], one["state"], one["allocated_gpu_s"]) for one in listed["runs"]] == [
        ("by-hand", "finished", 146)
    ]


def test_the_database_comes_from_the_environment_or_stands_here(
    db: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["report", "by-hand"]) == 1
    assert "goodput.duckdb" in failure(capsys)
    monkeypatch.setenv("GOODPUT_DB", db)
    assert main(["report", "by-hand"]) == 0
    monkeypatch.delenv("GOODPUT_DB")
    Path(db).rename("goodput.duckdb")
    assert main(["report", "by-hand"]) == 0


def test_an_expected_step_time_makes_slow_steps_a_loss(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "by-hand", "--db", db, "--json", "--expected-step-s", "0.75"]) == 0
    report = json.loads(capsys.readouterr().out)
    # 40 kept steps of 1 s on 2 GPUs, a quarter of each too slow.
    assert report["phases_gpu_s"]["straggler"] == {"jitter": 20}
    assert report["gpu_s"]["productive"] == 60


def test_an_unknown_run_is_answered_with_those_that_exist(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "by-hnd", "--db", db, "--json"]) == 1
    assert failure(capsys) == f"no run 'by-hnd' in {db}; did you mean by-hand? It holds: by-hand"
    assert main(["report", "zzz", "--db", db]) == 1
    assert failure(capsys) == f"no run 'zzz' in {db}; it holds: by-hand"
    assert main(["report", "z" * 5000, "--db", db]) == 1
    assert len(failure(capsys)) < 400


def test_a_run_that_is_still_going_shows_how_long_it_has_said_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now_ns = time.time_ns()
    alive = [line | {"ts_ns": now_ns - 720 * 10**9} for line in made_events.by_hand()[:1]]
    made_events.write(tmp_path / "alive.jsonl", alive)
    assert main(["ingest", "alive.jsonl"]) == 0
    capsys.readouterr()
    assert main(["report", "by-hand"]) == 0
    assert "last event 12 min" in capsys.readouterr().out
    assert main(["report", "by-hand", "--json"]) == 0
    assert "last_event_ns" not in json.loads(capsys.readouterr().out)


def test_a_terminal_that_knows_ascii_alone_gets_what_it_can_show(tmp_path: Path) -> None:
    event = {"kind": "progress", "run": "l\u00e9a", "source": "s", "seq": 0, "ts_ns": 1}
    (tmp_path / "e.jsonl").write_text(json.dumps(event) + "\n")

    def run(*args: str) -> subprocess.CompletedProcess[bytes]:
        plain = os.environ | {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
        command = [sys.executable, "-m", "goodput", *args, "--db", "g.duckdb"]
        return subprocess.run(command, capture_output=True, env=plain, cwd=tmp_path, check=False)

    loaded, listed, unknown = run("ingest", "e.jsonl"), run("report"), run("report", "x")
    assert (loaded.returncode, loaded.stderr, b"1 new" in loaded.stdout) == (0, b"", True)
    assert (listed.returncode, listed.stderr, b"l?a" in listed.stdout) == (0, b"", True)
    assert (unknown.returncode, unknown.stderr.count(b"\n")) == (1, 1)
    assert unknown.stderr.startswith(b"goodput: no run 'x' in g.duckdb; it holds: l")


def test_a_missing_database_is_not_made(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for args in (["report"], ["report", "x"]):
        assert main([*args, "--db", "none.duckdb"]) == 1
        assert "none.duckdb" in failure(capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["report"], ["report", "x"], ["ingest", "by-hand.jsonl"]])
def test_a_file_that_is_no_database(command: list[str], events: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = events.read_bytes()
    Path("notes.txt").write_text("these are notes\n" * 1000)
    for name in ("notes.txt", "by-hand.jsonl"):
        assert main([*command, "--db", name]) == 1
        assert failure(capsys) == f"{name} is not a DuckDB database; name another file with --db."
    assert Path("notes.txt").read_text() == "these are notes\n" * 1000
    assert events.read_bytes() == before


def test_a_database_of_something_else(capsys: pytest.CaptureFixture[str]) -> None:
    import duckdb

    duckdb.connect("other.duckdb").execute("CREATE TABLE cats (name VARCHAR)").close()
    assert main(["report", "--db", "other.duckdb"]) == 1
    assert "other.duckdb" in failure(capsys)


@pytest.mark.parametrize("command", [["report"], ["ingest", "by-hand.jsonl"]])
def test_a_database_that_another_process_holds(
    command: list[str], db: str, events: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, db], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "open\n"
        assert main([*command, "--db", db]) == 1
        assert db in failure(capsys)
        holder.communicate()
    assert main([*command, "--db", db]) == 0


def test_event_files_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ingest", "none.jsonl"]) == 1
    assert "none.jsonl" in failure(capsys)
    (tmp_path / "empty").mkdir()
    assert main(["ingest", "empty"]) == 1
    assert failure(capsys).startswith("empty is a folder without event files (*.jsonl). `goodput doctor` names")


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "x", "1e300", "1e10"])
def test_a_step_time_that_cannot_be(value: str, db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "by-hand", "--db", db, "--expected-step-s", value]) == 2
    assert "--expected-step-s" in failure(capsys)


@pytest.mark.parametrize("args", [["--faults", "flood"], ["--ranks", "0"], ["--ranks", "9"], ["--seconds", "0"]])
def test_a_demo_that_cannot_be_given(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *args]) == 2
    assert args[0] in failure(capsys)


@pytest.mark.parametrize("name", ["ingest", "report", "demo"])
def test_every_command_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"Example: goodput {name}" in " ".join(capsys.readouterr().out.split())


def test_a_missing_package_is_named_with_the_extra_that_brings_it(events: Path) -> None:
    code = "import sys; sys.modules['duckdb'] = None; from goodput.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "ingest", str(events)], capture_output=True, text=True, env=os.environ, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "goodput: duckdb is not installed: pip install 'goodput-ledger[collector]'\n"
