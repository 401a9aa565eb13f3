"""`goodput doctor` really tries what it speaks of, and says what to do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from run_commands import plain_environment

from goodput import checks, doctor, facts
from goodput.cli import main
from goodput.directory import is_tmpfs
from goodput.environment import Environment, read_environment

CHECKS = ["settings", "identity", "spool", "disk", "memory", "lock", "events", "kill", "clock", "devices", "token"]
HARMLESS = {"clock", "identity"}


def findings(**how: bool) -> dict[str, doctor.Finding]:
    return {finding.check: finding for finding in doctor.examine(read_environment(), **how)}


def test_a_healthy_machine_is_told_so(
    spool: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOODPUT_RUN", "llama")
    assert main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == 1 and [check["check"] for check in told["checks"]] == CHECKS
    verdicts = {check["check"]: check["verdict"] for check in told["checks"]}
    assert {verdicts[name] for name in CHECKS if name not in HARMLESS} == {"ok"}, told
    assert all((check["do"] is None) == (check["verdict"] == "ok") for check in told["checks"])
    assert [path.name for path in spool.iterdir() if path.name.startswith(".doctor")] == []


def test_the_text_has_a_line_for_each_check(capsys: pytest.CaptureFixture[str], spool: Path) -> None:
    assert main(["doctor", "--quick"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = [line.split()[1] for line in lines if not line.startswith(" ")]
    assert first == CHECKS[:-1]
    assert all(line.strip().startswith("do: ") for line in lines if line.startswith(" "))


def test_a_spool_that_cannot_be_used_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GOODPUT_SPOOL", str(tmp_path / "file"))
    assert main(["doctor", "--quick"]) == 1
    out = capsys.readouterr().out
    assert f"fail spool      {tmp_path}/file: " in out and "do: give a folder" in out
    found = findings(quick=True)
    assert {name for name, finding in found.items() if finding.verdict == "fail"} == {
        "spool", "disk", "lock", "events", "kill"
    }  # fmt: skip
    assert found["events"].do == "see spool"


def test_events_that_do_not_flow_are_noticed(monkeypatch: pytest.MonkeyPatch, spool: Path) -> None:
    monkeypatch.setenv("GOODPUT_DISABLED", "1")
    found = findings(quick=True)
    assert (found["settings"].verdict, found["settings"].do) == ("fail", "unset GOODPUT_DISABLED")
    assert found["events"].verdict == "fail" and "left nothing" in found["events"].says


def test_a_kill_that_costs_events_is_a_warning(monkeypatch: pytest.MonkeyPatch, spool: Path) -> None:
    monkeypatch.setenv("GOODPUT_MEMORY", "off")
    found = findings(quick=True)
    assert found["memory"].verdict == "warn" and "lost with a killed process" in (found["memory"].do or "")
    # On a machine that is busy enough, what was said may have been written before the kill.
    kills = [checks.kill(read_environment(), spool) for _ in range(3)]
    assert ("warn", "0 of 100 steps outlived a SIGKILL", "see memory") in kills
    assert found["events"].verdict == "ok"


def test_a_folder_on_a_disk_is_no_memory(tmp_path: Path) -> None:
    if is_tmpfs(str(tmp_path)):
        pytest.skip("the temporary directory is tmpfs here")
    assert checks.memory(Environment(memory=str(tmp_path)))[:2] == ("warn", f"{tmp_path} is no tmpfs")


def test_settings_that_make_no_sense_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOODPUT_DEVICES", "many")
    verdict, says, _ = checks.settings(read_environment())
    assert verdict == "warn" and "GOODPUT_DEVICES='many'" in says


def test_identity_is_what_the_launcher_says() -> None:
    place = {"TORCHELASTIC_RUN_ID": "abc", "RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}
    verdict, says, _ = checks.identity(read_environment({**place, "GOODPUT_RUN": "llama"}))
    assert verdict == "ok" and says.startswith("rank 3 of 8 on ")
    assert says.endswith("told by torchrun; job torchrun:abc; run llama")


@pytest.mark.parametrize(
    ("devices", "visible", "verdict"), [(2, None, "ok"), (3, None, "fail"), (1, "", "warn"), (1, "0", "ok")]
)
def test_devices_are_counted(monkeypatch: pytest.MonkeyPatch, devices: int, visible: str | None, verdict: str) -> None:
    monkeypatch.setattr(facts, "device_names", lambda: ["H200", "H200"])
    variables = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    found = checks.devices(Environment(devices=devices, variables=variables))
    assert found[0] == verdict and found[1].startswith("2 x H200; a rank drives")


@pytest.mark.parametrize(("free", "verdict"), [(1 << 40, "ok"), (1 << 30, "warn"), (1 << 20, "fail")])
def test_room_on_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, verdict: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1 << 41, 0, free))  # type: ignore[attr-defined]
    monkeypatch.setattr(checks, "_SLOW_S", 1e9)
    assert checks.disk(tmp_path / "not" / "yet")[0] == verdict


def test_bad_usage_is_a_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "goodput", "doctor", "--what"],
        env=plain_environment(Path("/none"), PYTHONPATH=os.pathsep.join(sys.path)),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "goodput: unrecognized arguments: --what. See: goodput doctor --help\n"


@pytest.mark.parametrize("more", [["--json"], []])
def test_a_reader_that_goes_away_is_no_error_of_ours(spool: Path, more: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "goodput", "doctor", "--quick", *more],
            env=plain_environment(spool),
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, "")
