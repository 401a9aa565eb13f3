"""`goodput run` records the ranks of a training that knows nothing of us, and sees how they end."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from recorder_reading import done_steps, of_rank, read_events
from recorder_scripts import SOURCES
from run_commands import run_alone, run_under

PYTHON = sys.executable
TRAINING = str(Path(__file__).with_name("plain_training.py"))
TORCHRUN = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--monitor-interval", "0.1"]
RESTARTS = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def by_kind(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in of_rank(events) if event["kind"] == kind]


def own(events: list[dict[str, Any]], source: str) -> list[dict[str, Any]]:
    return [event for event in events if event["source"] == source]


def spans(events: list[dict[str, Any]]) -> dict[str, list[float]]:
    """The seconds that each span took, by name."""
    begun = {event["id"]: event for event in by_kind(events, "begin")}
    found: dict[str, list[float]] = {}
    for end in by_kind(events, "end"):
        took_s = (end["ts_ns"] - begun[end["id"]]["ts_ns"]) / 1e9
        found.setdefault(end["span"], []).append(took_s)
    return found


def report_of(run: str, spool: Path, db: Path) -> dict[str, Any]:
    """What the ledger makes of a spool."""
    import goodput_analytics
    from goodput_collector.database import open_database
    from goodput_collector.landing import ingest_files

    ingest_files(db, sorted(spool.glob("*.jsonl")), None)
    connection = open_database(db, read_only=True)
    try:
        return goodput_analytics.report(connection, run).as_json()
    finally:
        connection.close()


@pytest.mark.soak
def test_torchruns_output_stays_the_same(spool: Path, tmp_path: Path) -> None:
    arguments = [*TORCHRUN, TRAINING, "20", "--pace", "0.02", "--loaders", "spawn,forkserver", "--save"]
    under = run_under([*arguments, str(tmp_path / "a.pt")], spool, "--run", "two", "--quiet")
    alone = run_alone([*arguments, str(tmp_path / "b.pt")], spool)
    assert (under.returncode, under.stderr) == (alone.returncode, alone.stderr) == (0, b"")
    assert sorted(under.stdout.splitlines()) == sorted(alone.stdout.splitlines())


def test_torchrun_is_recorded(spool: Path, tmp_path: Path) -> None:
    arguments = ["20", "--pace", "0.02"]
    mine = ["--loaders", "spawn,fork", "--save", str(tmp_path / "a.pt"), "--truth", str(tmp_path / "truth")]
    under = run_under([*TORCHRUN, TRAINING, *arguments, *mine], spool, "--run", "two", "--quiet")
    assert (under.returncode, under.stderr) == (0, b"")
    assert len(under.stdout.splitlines()) == 2 * 20, "what the ranks print, and nothing of ours"
    events = read_events(spool)
    starts = by_kind(events, "start")
    assert sorted((event["rank"], event["world_size"], event["run"]) for event in starts) == [
        (0, 2, "two"),
        (1, 2, "two"),
    ], "two ranks: neither torchrun nor a loader's worker is one"
    assert len({event["job"] for event in starts}) == 1 and starts[0]["job"].startswith("torchrun:")
    assert len({event["attempt_token"] for event in by_kind(events, "joined")}) == 1
    assert {event["meta"]["backend"] for event in by_kind(events, "joined")} == {"gloo"}
    assert [event["reason"] for event in by_kind(events, "stop")] == ["exited", "exited"]
    assert by_kind(events, "exit_observed") == [] and by_kind(events, "dropped") == []
    for event in starts:
        rank, told = event["rank"], own(events, event["source"])
        truth = json.loads((tmp_path / f"truth.{rank}").read_text())
        assert done_steps(told) == list(range(1, 21))
        ends_s = [step["end_ns"] / 1e9 for step in by_kind(told, "step") if step.get("count", 1) == 1]
        assert all(min(abs(end_s - true_s) for true_s in truth["steps"]) < 0.01 for end_s in ends_s)
        assert [event["step"] for event in by_kind(told, "resume")] == [None]
        seen = spans(told)
        assert len(seen["rendezvous"]) == 1
        assert len(seen.get("checkpoint", [])) == len(truth["saves"]) == (2 if rank == 0 else 0)
        assert all(abs(a - b) < 0.02 for a, b in zip(seen.get("checkpoint", []), truth["saves"], strict=True))


def test_a_killed_rank_is_seen_and_the_restart_goes_on_from_the_save(spool: Path, tmp_path: Path) -> None:
    command = [*TORCHRUN, "--max-restarts", "1", TRAINING, "40", "--save", str(tmp_path / "a.pt"), "--pace", "0.01"]
    done = run_under([*command, "--end", "kill@1.25"], spool, "--run", "killed", environment=RESTARTS)
    assert done.returncode == 0, done.stderr
    events = read_events(spool)
    source = {(event["rank"], event["restart_count"]): event["source"] for event in by_kind(events, "start")}
    assert set(source) == {(0, 0), (1, 0), (0, 1), (1, 1)}
    seen = {event["of"]: event for event in by_kind(events, "exit_observed")}
    assert seen[source[1, 0]]["signal"] == signal.SIGKILL
    assert seen[source[1, 0]]["detail"].startswith("leaves by kill")
    assert seen[source[1, 0]].get("oom") is not True
    assert set(seen) <= {source[0, 0], source[1, 0]}
    assert done_steps(own(events, source[1, 0])) == list(range(1, 26)), "what it had said outlived the kill"
    for rank in (0, 1):
        second = own(events, source[rank, 1])
        assert [event["step"] for event in by_kind(second, "resume")] == [20]
        assert done_steps(second) == list(range(21, 41))
        assert len(spans(second)["load_checkpoint"]) == 1
    words = done.stderr.decode()
    assert "goodput: killed: goodput " in words and "20 steps, 2 saves in" in words
    assert "was killed by SIGKILL\n" in words and "goodput: largest losses: startup" in words
    told = report_of("killed", spool, tmp_path / "killed.duckdb")
    assert [(one["end_cause"], one["world_size"]) for one in told["attempts"]] == [("crash", 2), ("finished", 2)]
    assert [one["resume_step"] for one in told["attempts"]] == [None, 20]
    (incident,) = told["incidents"]
    assert (incident["cause"], incident["lost_steps"], list(incident["suspect_ranks"])) == ("crash", 5, [1])
    assert told["quality"]["rejected"] == {} and not told["quality"]["silent_ranks"]


@pytest.mark.parametrize(
    ("how", "status", "reason", "seen"),
    [
        pytest.param("exit3", 3, "exception", {"exit_code": 3}, marks=pytest.mark.soak),
        pytest.param("os_exit0", 0, "exited", None, marks=pytest.mark.soak),
        pytest.param("os_exit4", 4, None, {"exit_code": 4}, marks=pytest.mark.soak),
        ("raise", 1, "exception", {"exit_code": 1}),
        ("kill", -9, None, {"signal": 9}),
    ],
)
def test_how_a_single_process_ends(
    spool: Path, tmp_path: Path, how: str, status: int, reason: str | None, seen: dict[str, int] | None
) -> None:
    done = run_under([PYTHON, TRAINING, "6", "--pace", "0.03", "--end", how, "--loaders", "fork"], spool)
    assert done.returncode == status
    events = read_events(spool)
    (start,) = by_kind(events, "start")
    assert start["job"].startswith("local:") and start["run"].startswith("plain_training-")
    assert done_steps(own(events, start["source"])) == [1, 2, 3, 4, 5, 6]
    assert [event["reason"] for event in by_kind(events, "stop")] == ([] if reason is None else [reason])
    observed = by_kind(events, "exit_observed")
    assert len(observed) == (0 if seen is None else 1)
    for event in observed:
        assert event["of"] == start["source"]
        assert {name: event[name] for name in ("exit_code", "signal") if name in event} == seen
        assert event["detail"].splitlines()[0].startswith("leaves by")
        assert how != "raise" or event["detail"].endswith("ValueError: the data has gone")
    words = done.stderr.decode()
    assert f"goodput: {start['run']}: goodput " in words and ": 6 steps in " in words
    assert "goodput: not seen: any save" in words or reason is None


SPAWNED = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.utils.data import DataLoader

def work(rank, path):
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=2)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(torch.zeros(6, 2), batch_size=2):
        model(batch).sum().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()
    if rank == 1:
        os._exit(5)

if __name__ == "__main__":
    mp.spawn(work, (sys.argv[1],), nprocs=2)
"""


def test_ranks_that_a_program_starts_itself(spool: Path, tmp_path: Path) -> None:
    (tmp_path / "spawned.py").write_text(SPAWNED)
    done = run_under([PYTHON, str(tmp_path / "spawned.py"), str(tmp_path / "store")], spool)
    assert done.returncode == 1 and b"exit code 5" in done.stderr
    events = read_events(spool)
    starts = {event["rank"]: event for event in by_kind(events, "start")}
    assert {rank: event["world_size"] for rank, event in starts.items()} == {0: 2, 1: 2}
    assert starts[0]["job"] == starts[1]["job"]
    assert len(by_kind(events, "start")) == 2, "the parent is no rank"
    for event in starts.values():
        assert done_steps(own(events, event["source"])) == [1, 2, 3]
    observed = {event["of"]: event for event in by_kind(events, "exit_observed")}
    assert observed.pop(starts[1]["source"])["exit_code"] == 5
    # The other one may have been cleared away for it.
    assert all((of, event["signal"]) == (starts[0]["source"], 15) for of, event in observed.items())


START = 'rec = goodput.start(run="mine")'


@pytest.mark.parametrize(
    ("first", "then", "run"),
    [("", START, "mine"), (START, "", "another"), pytest.param(START, "", "mine", marks=pytest.mark.soak)],
)
def test_a_program_that_records_itself_is_recorded_once(spool: Path, first: str, then: str, run: str) -> None:
    """Wherever it says so: after `goodput run` knew that it is a rank, or, before all imports, first."""
    script = f"""
import sys; sys.path.insert(0, {SOURCES!r})
import goodput
{first}
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{then}
rec.resumed(100)
for step in range(101, 105):
    with rec.step(step):
        model(torch.ones(2)).backward()
        optimizer.step()
    with rec.checkpoint(step):
        torch.save(model.state_dict(), "/dev/null")
rec.finish()
"""
    done = run_under([PYTHON, "-c", script], spool, "--run", run)
    assert done.returncode == 0, done.stderr
    assert (b"recorded as 'mine', not as 'another'" in done.stderr) == (run == "another")
    events = read_events(spool)
    assert {event["run"] for event in events} == {"mine"}
    assert [event["kind"] for event in of_rank(events) if event["kind"] not in ("step", "begin", "end")] == [
        "start",
        "resume",
        "stop",
    ]
    assert by_kind(events, "stop")[0]["reason"] == "finished"
    assert done_steps(events) == [101, 102, 103, 104]
    assert len(spans(events)["checkpoint"]) == 4
    assert done.stderr.count(b": 4 steps, 4 saves in ") == 1, "one summary, after the command"


def test_a_program_that_only_uses_torch_is_no_training(spool: Path) -> None:
    done = run_under([PYTHON, "-c", "import torch; print(torch.ones(1).item())"], spool)
    assert (done.returncode, done.stdout) == (0, b"1.0\n")
    assert done.stderr.startswith(b"goodput: not seen: any training: ") and done.stderr.count(b"\n") == 1
    assert read_events(spool) == []


def test_tracebacks_show_no_line_of_ours(spool: Path) -> None:
    script = """
import _thread, torch
from torch.utils.data import DataLoader
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        raise KeyError(index)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
import traceback
for attempt in (
    lambda: torch.save(_thread.allocate_lock(), "/dev/null"),
    lambda: torch.load("/nowhere"),
    lambda: optimizer.load_state_dict({"state": {}, "param_groups": []}),
    lambda: torch.distributed.init_process_group("none", init_method="tcp://127.0.0.1:1", rank=0, world_size=1),
    lambda: torch.amp.GradScaler("cpu").step(optimizer),
    lambda: next(iter(DataLoader(Rows()))),
    lambda: torch.optim.SGD([], lr=0.1),
):
    try:
        attempt()
    except Exception:
        traceback.print_exc()
next(iter(DataLoader(Rows())))
"""
    alone, under = run_alone([PYTHON, "-c", script], spool), run_under([PYTHON, "-c", script], spool, "--quiet")
    assert (under.returncode, under.stdout, under.stderr) == (alone.returncode, alone.stdout, alone.stderr)
    assert alone.stderr.count(b"Traceback") == 8


def test_a_rank_says_nothing_among_the_commands_output_and_keeps_nothing_alive(spool: Path, tmp_path: Path) -> None:
    script = f"""
import gc, sys, torch, weakref
from torch.utils.data import DataLoader
gc.disable()
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
torch.save(optimizer.state_dict(), {str(tmp_path / "sgd.pt")!r})
optimizer.load_state_dict(torch.load({str(tmp_path / "sgd.pt")!r}))
def train():
    iterator = iter(DataLoader(torch.ones(6, 2)))
    for batch in iterator:
        model(batch).sum().backward()
        optimizer.step()
    return weakref.ref(iterator)
iterator = train()
del optimizer
model = weakref.ref(model)
print(iterator(), model(), "live on")
print("end", file=sys.stderr)
"""
    done = run_under([PYTHON, "-c", script], spool, environment={"GOODPUT_DEVICES": "some"})
    lines = done.stderr.decode().splitlines()
    assert (done.returncode, lines[0]) == (0, "end")
    assert done.stdout == b"None None live on\n", "what the program lets go of is gone, as it would be alone"
    assert all(line.startswith("goodput: ") for line in lines[1:])
    assert [line for line in lines if "GOODPUT_DEVICES='some' is not a number" in line] != []
    assert [
        line for line in lines if line.startswith("goodput: note: a checkpoint was loaded that does not tell")
    ] != []


@pytest.mark.soak
def test_a_rank_that_replaces_itself_is_two_attempts_in_order(spool: Path, tmp_path: Path) -> None:
    script = tmp_path / "again.py"
    script.write_text(
        "import os, sys, torch\n"
        "net = torch.nn.Linear(2, 2)\n"
        "optimizer = torch.optim.AdamW(net.parameters())\n"
        "for _ in range(6):\n"
        "    net(torch.ones(2)).sum().backward()\n"
        "    optimizer.step()\n"
        "if len(sys.argv) == 1:\n"
        "    os.execv(sys.executable, [sys.executable, __file__, 'again'])\n"
    )
    done = run_under([PYTHON, str(script)], spool, "--run", "again")
    assert done.returncode == 0
    said = done.stderr.decode()
    assert "was killed" not in said and "not seen: how" not in said
    events = read_events(spool)
    first, second = sorted(by_kind(events, "start"), key=lambda event: event["ts_ns"])
    (seen,) = by_kind(events, "exit_observed")
    assert seen["of"] == first["source"] and "exit_code" not in seen and "another program" in seen["detail"]
    assert seen["ts_ns"] < own(by_kind(events, "step"), second["source"])[0]["end_ns"]
    found = report_of("again", spool, tmp_path / "db")
    assert (found["state"], len(found["attempts"])) == ("finished", 2)
    assert [attempt["end_cause"] for attempt in found["attempts"]] == ["crash", "finished"]
