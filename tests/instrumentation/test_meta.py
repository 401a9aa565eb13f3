"""What a record tells of its process: versions, devices, process group, settings of collectives."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from recorder_reading import of_rank, read_events
from recorder_scripts import run_script

from goodput import facts


def test_settings_of_collectives_and_devices_are_told_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "device_names", lambda: ["H200", "L4", "H200"])
    told = facts.process_facts(
        {
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
            "NCCL_DEBUG": "x" * 1000,
            "CUDA_VISIBLE_DEVICES": "0,2",
            "AWS_SECRET_ACCESS_KEY": "never",
        }
    )
    assert told["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "1"
    assert told["NCCL_DEBUG"] == "x" * 300
    assert told["CUDA_VISIBLE_DEVICES"] == "0,2"
    assert told["device_names"] == "2 x H200, 1 x L4"
    assert "never" not in told.values()


def test_names_are_the_drivers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(facts, "_NVIDIA_DEVICES", tmp_path / "gpus")
    assert facts.device_names() == []
    (tmp_path / "gpus" / "0000:3b:00.0").mkdir(parents=True)
    (tmp_path / "gpus" / "0000:3b:00.0" / "information").write_text("Model: \t\t NVIDIA H200\nIRQ:   24\n")
    assert facts.device_names() == ["NVIDIA H200"]


def test_versions_are_of_what_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("torch", "lightning", "transformers")]:
        monkeypatch.delitem(sys.modules, name)
    assert set(facts.versions()) <= {"python", "accelerate", "deepspeed"}
    torch = SimpleNamespace(__version__="2.9", version=SimpleNamespace(cuda="12.8", hip=None))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._C", SimpleNamespace(_nccl_version=lambda: 0))
    monkeypatch.setitem(sys.modules, "torch.cuda.nccl", SimpleNamespace(version=lambda: (2, 27, 3)))
    told = facts.versions()
    assert (told["torch"], told["cuda"], told["nccl"]) == ("2.9", "12.8", "2.27.3")
    assert "hip" not in told


def test_start_tells_them_and_joined_tells_what_came_later(spool: Path) -> None:
    done = run_script(
        """
        early = goodput.start(run="early", meta={"note": "mine"})
        assert "torch" not in sys.modules
        import datetime
        import torch.distributed as dist
        path = os.environ["GOODPUT_SPOOL"] + "/store"
        dist.init_process_group("gloo", init_method=f"file://{path}", rank=0, world_size=1,
                                timeout=datetime.timedelta(seconds=77))
        late = goodput.start(run="late")
        time.sleep(0.4)
        late.finish()
        early.finish()
        os._exit(0)
        """,
        spool,
        TORCH_NCCL_TRACE_BUFFER_SIZE="2000",
    )
    assert done.returncode == 0, done.stderr
    events = of_rank(read_events(spool))
    start = {event["run"]: event["meta"] for event in events if event["kind"] == "start"}
    joined = {event["run"]: event["meta"] for event in events if event["kind"] == "joined"}
    assert start["early"]["note"] == "mine" and start["early"]["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "2000"
    assert "torch" not in start["early"] and "backend" not in start["early"]
    for told in (start["late"], joined["early"], joined["late"]):
        assert told["torch"].startswith("2.") and (told["backend"], told["group_timeout_s"]) == ("gloo", "77")
