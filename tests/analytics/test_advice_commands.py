"""`goodput advise` and `goodput simulate`: exact shapes of what they print, and one line for what cannot be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_advice_fleet import events, lives
from test_advice_run import story

from goodput.cli import main
from goodput_analytics.advice_cost import CostModel
from reference.planned import Life, Shape

FIGURES = ["--checkpoint-s", "120", "--mtbf-s", "11160", "--restart-s", "600"]
ROW = {
    "interval_s",
    "goodput_ratio",
    "checkpoint_ratio",
    "rework_ratio",
    "restart_ratio",
    "model_ratio",
    "stderr",
}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GOODPUT_DB", raising=False)


def as_json(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert main([*args, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def words(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(list(args)) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def landed(capsys: pytest.CaptureFixture[str], told: list[dict[str, Any]]) -> None:
    Path("events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in told))
    assert main(["ingest", "events.jsonl"]) == 0
    capsys.readouterr()


# -- advise from figures ----------------------------------------------------------------------------------------------


def test_advice_from_figures(capsys: pytest.CaptureFixture[str]) -> None:
    told = as_json(capsys, "advise", *FIGURES)
    model = CostModel(checkpoint_s=120, mtbf_s=11160, restart_s=600)
    assert list(told)[:5] == ["young_s", "daly_s", "optimal_s", "waste_ratio", "goodput_ratio"]
    assert round(told["young_s"] / 60, 1) == 27.3
    assert told["optimal_s"] == model.optimal_s
    assert told["goodput_ratio"] == model.goodput_ratio(model.optimal_s)
    assert told["goodput_ratio"] + told["waste_ratio"] == pytest.approx(1)
    assert (told["waste_gpu_s"], told["waste_cost"], told["actual"]) == (None, None, None)


def test_advice_in_gpu_hours_and_money(capsys: pytest.CaptureFixture[str]) -> None:
    told = as_json(capsys, "advise", *FIGURES, "--gpus", "64", "--price", "2", "--interval-s", "7200")
    assert told["held_gpu_s"] == 64 * 86_400
    assert told["waste_gpu_s"] == pytest.approx(told["waste_ratio"] * 64 * 86_400)
    assert told["waste_cost"] == pytest.approx(told["waste_gpu_s"] / 3600 * 2)
    assert told["actual"]["goodput_ratio"] == pytest.approx(0.662, abs=0.003)
    assert told["actual"]["waste_gpu_s"] > told["waste_gpu_s"]
    assert {w["change"] for w in told["what_ifs"]} == {"async_save", "faster_restart", "all"}
    said = words(capsys, "advise", *FIGURES, "--gpus", "64", "--price", "2", "--interval-s", "7200")
    assert said.startswith("Save after every 25 min 58 s of work: goodput 81.5 % at best.\n")
    assert said.count("all of these") == 1
    lost_gpu_h = told["actual"]["waste_gpu_s"] / 3600
    assert f"two saves: goodput 66.0 %; {lost_gpu_h:.1f} GPU-hours lost in a day, worth {2 * lost_gpu_h:,.2f}." in said


# -- advise from a record ---------------------------------------------------------------------------------------------


def test_advice_from_a_record(capsys: pytest.CaptureFixture[str]) -> None:
    landed(capsys, story().events)
    told = as_json(capsys, "advise", "planned", "--price", "3600")
    assert (told["schema"], told["run"], told["gpus"], told["interval_s"]) == (1, "planned", 2, 21.5)
    assert told["mtbf"]["interruptions"] == 2 and told["mtbf"]["few"]
    assert told["mtbf"]["low_s"] < told["mtbf"]["mtbf_s"] < told["mtbf"]["high_s"]
    assert told["optimal_low_s"] < told["optimal_s"] < told["optimal_high_s"]
    assert told["waste_cost"] == pytest.approx(told["waste_gpu_s"])
    assert (told["timeout"]["timeout_s"], told["timeout"]["saved_per_hang_gpu_s"]) == (15, 52)
    assert told["saves"]["count"] == 6
    assert [row["ranks"] for row in told["noise"]["at_ranks"]] == [2, 20]
    said = words(capsys, "advise", "planned")
    assert said.startswith("Advice for planned\n\n6 saves: each blocks 3.00 s on average")
    for part in (
        "2 interruptions in 2 min 30 s of running: one in 1 min 15 s",
        "With 2 interruptions this is uncertain",
        "A restart takes 14.0 s. 1 hang: 20.5 s per interruption.",
        "Collective timeout: 15.0 s (the risk is not known",
        "Hangs now last 41.0 s: it would save 52.00 GPU-seconds per hang.",
    ):
        assert part in said, part


def test_a_record_without_saves_or_failures_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    life = Life(shape=Shape(busy=False))
    life.launch()
    life.finish(0, 0)
    landed(capsys, life.events)
    told = as_json(capsys, "advise", "planned")
    assert (told["young_s"], told["optimal_s"], told["saves"], told["mtbf"]["mtbf_s"]) == (None, None, None, None)
    said = words(capsys, "advise", "planned")
    assert "No interval can be advised without a durable save" in said
    assert "the time between them is unknown (95 % sure: 1.08 s or more)" in said
    assert "What noise would cost at more ranks is not known" in said


def test_a_record_and_advice_have_the_same_keys_with_and_without_an_interval(
    capsys: pytest.CaptureFixture[str],
) -> None:
    landed(capsys, story().events)
    full = as_json(capsys, "advise", "planned")
    empty = Life(shape=Shape(), run="empty")
    empty.launch()
    landed(capsys, [event | {"source": f"empty/{event['source']}"} for event in empty.events])
    assert list(as_json(capsys, "advise", "empty")) == list(full)


def test_a_stall_that_the_timeout_would_have_cut_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    life = Life(shape=Shape())
    life.launch()
    life.plain(40)
    life.stall(300_000_000_000)
    life.plain(40)
    life.finish(0, 0)
    landed(capsys, life.events)
    assert "1 stall that ended by itself would have been cut." in words(capsys, "advise", "planned")


def test_other_numbers_of_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    landed(capsys, story(4).events)
    told = as_json(capsys, "advise", "planned", "--ranks", "8,4096")
    assert [row["ranks"] for row in told["noise"]["at_ranks"]] == [4, 8, 40, 4096]


def test_a_fleet(capsys: pytest.CaptureFixture[str]) -> None:
    landed(capsys, events(lives()))
    told = as_json(capsys, "advise", "--fleet", "--price", "36")
    assert told["contention"] == pytest.approx(1, abs=1e-3)
    assert [(row["in_flight"], row["saves"]) for row in told["crowds"]] == [(1, 16), (2, 16)]
    assert told["saved_gpu_s"] == pytest.approx(320, rel=1e-3)
    assert told["saved_cost"] == pytest.approx(3.2, rel=1e-3)
    said = words(capsys, "advise", "--fleet")
    assert "32 blocking saves of 2 runs." in said
    assert "Staggered, saves would have cost 320.0 GPU-seconds less of 960.0 GPU-seconds." in said


def test_a_fleet_is_read_from_a_file_whatever_collector_the_environment_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    landed(capsys, events(lives()))
    monkeypatch.setenv("GOODPUT_URL", "http://127.0.0.1:1")
    assert as_json(capsys, "advise", "--fleet")["saves"] == 32
    assert main(["advise", "--fleet", "--url", "http://127.0.0.1:1"]) == 2
    assert "leave out --url" in capsys.readouterr().err


def test_an_empty_fleet(capsys: pytest.CaptureFixture[str]) -> None:
    landed(capsys, story().events[:1])
    assert as_json(capsys, "advise", "--fleet")["contention"] is None
    assert "not known" in words(capsys, "advise", "--fleet")


# -- simulate ---------------------------------------------------------------------------------------------------------


SIMULATE = ["simulate", "--useful-h", "200", "--mtbf-h", "3.1", "--checkpoint-s", "120", "--restart-s", "600"]
HOPELESS = ["simulate", "--mtbf-h", "0.01", "--checkpoint-s", "1", "--interval-min", "60", "--runs", "2"]


def test_simulated_rows(capsys: pytest.CaptureFixture[str]) -> None:
    intervals = "5,10,20,30,45,60,90,120,180,young"
    told = as_json(capsys, *SIMULATE, "--interval-min", intervals, "--runs", "400", "--seed", "1")
    assert all(set(row) == ROW for row in told)
    assert [round(row["interval_s"] / 60, 1) for row in told] == [5, 10, 20, 30, 45, 60, 90, 120, 180, 27.3]
    goodputs = [row["goodput_ratio"] for row in told]
    assert goodputs == pytest.approx([0.665, 0.765, 0.812, 0.815, 0.799, 0.775, 0.719, 0.662, 0.554, 0.816], abs=0.01)
    said = words(capsys, *SIMULATE, "--interval-min", "30,young,daly,optimal", "--runs", "50")
    *rows, legend = said.splitlines()
    assert [line.split()[0] for line in rows] == ["interval", "30", "27", "25", "25"]
    assert legend.endswith("model: what the first-order formula says of it.")


def test_what_else_it_simulates_is_told_only_then(capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--hang-ratio", "0.3", "--timeout-s", "900", "--nodes", "8", "--repair-s", "7200", "--runs", "20"]
    (row,) = as_json(capsys, *SIMULATE, "--weibull-shape", "0.7", "--write-s", "30", *more)
    assert set(row) == ROW | {"hang_ratio", "degraded_ratio"}
    shares = [row[key] for key in row if key.endswith("_ratio") and key != "model_ratio"]
    assert sum(shares) == pytest.approx(1)
    (row,) = as_json(capsys, *HOPELESS)
    assert row["finished_ratio"] == 0
    assert "cut short" in words(capsys, *HOPELESS)


def test_failures_as_they_came(capsys: pytest.CaptureFixture[str]) -> None:
    Path("failures.txt").write_text("# the week of the 3rd\n450   # a node\n\n1500\n")
    args = "simulate --useful-h 0.5 --checkpoint-s 0 --interval-min 5 --failures failures.txt --runs 1"
    (row,) = as_json(capsys, *args.split())
    # Of 1,800 s 150 are lost at 450, and again 150 at 1,500 (a save was at 1,350).
    assert (row["goodput_ratio"], row["stderr"]) == (pytest.approx(1800 / 2100), None)


def test_slow_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    told = as_json(capsys, "simulate", "--ranks", "8,64,512,4096")
    assert [round(row["formula_slowdown"], 3) for row in told] == [
        1.004, 1.016, 1.032, 1.120, 1.226, 1.641, 1.871, 2.000,
    ]  # fmt: skip
    assert all(abs(row["simulated_slowdown"] - row["formula_slowdown"]) < 0.02 for row in told)
    assert set(told[0]) == {"ranks", "slow_ratio", "any_slow_ratio", "simulated_slowdown", "formula_slowdown"}
    said = words(capsys, "simulate", "--ranks", "8").splitlines()
    assert said[1].split()[0] == "8"
    assert said[-1].endswith("then how many normal steps one takes on average.")


# -- what cannot be ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        "advise",
        "advise --checkpoint-s 5",
        "advise --checkpoint-s nan --mtbf-s 5",
        "advise --checkpoint-s 0 --mtbf-s 5",
        "advise --checkpoint-s 5 --mtbf-s 0",
        "advise --checkpoint-s 5 --mtbf-s inf",
        "advise --checkpoint-s x --mtbf-s 5",
        "advise --checkpoint-s 5 --mtbf-s 5 --interval-s 0",
        "advise --checkpoint-s 5 --mtbf-s 5 --gpus 0",
        "advise --checkpoint-s 5 --mtbf-s 5 --price -1",
        "advise --checkpoint-s 5 --mtbf-s 5 --gpus 64 --price 1e308 --json",
        f"advise --checkpoint-s 5 --mtbf-s 5 --gpus {10**400}",
        "advise --checkpoint-s 5 --mtbf-s 5 --interval-s 1e300",
        "advise --checkpoint-s 5 --mtbf-s 5 --risk 0.1",
        "advise --checkpoint-s 5 --mtbf-s 5 --ranks 8",
        "advise run --gpus 5",
        "advise run --risk 1",
        "advise run --ranks 0",
        "advise run --ranks a",
        "advise run --fleet",
        "advise --fleet --mtbf-s 5",
        "advise --fleet --ranks 8",
        "simulate",
        "simulate --checkpoint-s 5",
        "simulate --mtbf-h 5",
        "simulate --mtbf-h -5 --checkpoint-s 5",
        "simulate --mtbf-h nan --checkpoint-s 5",
        "simulate --mtbf-h 5 --checkpoint-s -5",
        "simulate --mtbf-h 5 --checkpoint-s 5 --interval-min x",
        "simulate --mtbf-h 5 --checkpoint-s 5 --interval-min 0",
        "simulate --mtbf-h 5 --checkpoint-s 5 --interval-min ,",
        "simulate --mtbf-h 5 --checkpoint-s 0",
        "simulate --mtbf-h 5 --checkpoint-s 5 --runs 0",
        "simulate --mtbf-h 5 --checkpoint-s 5 --seed -1",
        "simulate --mtbf-h 5 --checkpoint-s 5 --useful-h 0",
        "simulate --mtbf-h 5 --checkpoint-s 5 --hang-ratio 2",
        "simulate --mtbf-h 5 --checkpoint-s 5 --weibull-shape 0",
        "simulate --mtbf-h 5 --checkpoint-s 5 --nodes 0",
        "simulate --mtbf-h 5 --checkpoint-s 5 --nodes 100000 --runs 100000",
        "simulate --mtbf-h 5 --checkpoint-s 5 --nodes 2 --min-nodes 3",
        "simulate --mtbf-h 5 --checkpoint-s 5 --failures bad.txt",
        "simulate --checkpoint-s 5 --failures bad.txt",
        "simulate --checkpoint-s 5 --failures unordered.txt",
        "simulate --checkpoint-s 5 --failures binary.txt",
        "simulate --checkpoint-s 5 --failures empty.txt --interval-min young",
        "simulate --ranks 8 --mtbf-h 5",
        "simulate --ranks 0",
        "simulate --ranks 8 --slow-ratio 2",
        "simulate --ranks 8 --slow-factor 0.5",
        "simulate --ranks 8 --slow-ratio 0.5 --slow-factor 1e308 --json",
        "simulate --ranks 8 --steps 0",
        "simulate --ranks 8 --seed -1",
    ],
)
def test_bad_usage_is_one_line_and_exit_status_2(args: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in {"bad.txt": "1\nsoon\n", "unordered.txt": "5\n3\n", "empty.txt": "# none\n"}.items():
        Path(name).write_text(text)
    Path("binary.txt").write_bytes(b"\xff\xfe\x00")
    assert main(args.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("goodput: ") and err.count("\n") == 1 and "should not happen" not in err


def test_a_line_that_is_no_number_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.txt").write_text("1\nsoon\n")
    assert main(["simulate", "--checkpoint-s", "5", "--failures", "bad.txt"]) == 2
    assert "line 2 of bad.txt is not a number of seconds: 'soon'" in capsys.readouterr().err


def test_what_is_not_there_is_one_line_and_exit_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    for args in ("advise run", "advise --fleet", "simulate --checkpoint-s 5 --failures none.txt"):
        assert main(args.split()) == 1
        assert capsys.readouterr().err.count("\n") == 1
    landed(capsys, story().events)
    assert main(["advise", "plannd"]) == 1
    assert "did you mean planned?" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["advise", "simulate"])
def test_every_command_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"Example: goodput {name}" in " ".join(words(capsys, name, "--help").split())


def test_without_numpy_the_extra_is_named() -> None:
    code = "import sys; sys.modules['numpy'] = None; from goodput.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, *SIMULATE], capture_output=True, text=True, env=os.environ, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "goodput: numpy is not installed: pip install 'goodput-ledger[collector]'\n"


def test_advice_from_figures_needs_no_numpy_and_help_nothing_heavy() -> None:
    code = (
        "import sys; sys.modules['numpy'] = None; from goodput.cli import main; r = main(sys.argv[1:]); "
        "print([m for m in ('duckdb', 'rich', 'goodput_analytics') if m in sys.modules], file=sys.stderr); sys.exit(r)"
    )

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=False)

    assert run("advise", *FIGURES).returncode == 0
    helped = run("--help")
    assert (helped.returncode, helped.stderr) == (0, "[]\n")
    assert "advise" in helped.stdout and "simulate" in helped.stdout
