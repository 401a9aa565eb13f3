"""`goodput allocation`: what Slurm and Kubernetes know, as grants in the ledger."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_events import T0_NS, S, by_hand, write
from service_running import Collector, eventually, goodput

import goodput_analytics
from goodput_collector.allocation import AllocationError, EndReason, Grant, lines, moment_ns
from goodput_collector.allocation_kubernetes import grants_of_pods
from goodput_collector.allocation_slurm import grant_of_environment, grants_of_sacct
from goodput_collector.database import open_database
from goodput_collector.landing import ingest_files

T0_S = T0_NS // S
HEAD = "JobIDRaw|State|Submit|Start|End|AllocTRES|Reason"
TRES = "billing=64,cpu=64,gres/gpu:h100=16,gres/gpu=16,mem=1T,node=2"


def row(job: object, state: str, submit: object, start: object, end: object, tres: str = TRES, reason: str = "") -> str:
    return f"{job}|{state}|{submit}|{start}|{end}|{tres}|{reason}"


def of_text(*rows: str, **options: Any) -> list[Grant]:
    return list(grants_of_sacct("\n".join([HEAD, *rows]) + "\n", **options).grants)


def test_lives_of_a_requeued_job_are_jobs_of_their_own() -> None:
    found = of_text(
        row(7, "CANCELLED by 1000", T0_S + 500, T0_S + 900, T0_S + 1000),
        row(7, "PREEMPTED", T0_S, T0_S + 60, T0_S + 200),
        row("7.0", "FAILED", T0_S, T0_S + 60, T0_S + 200),
        row("7.batch", "FAILED", T0_S, T0_S + 60, T0_S + 200),
        row(7, "NODE_FAIL", T0_S + 200, T0_S + 300, T0_S + 500),
    )
    told = [(one.job, one.gpus, one.submit_ns, one.start_ns, one.end_ns, one.end_reason) for one in found]
    assert told == [
        ("slurm:7.0", 16, T0_NS, T0_NS + 60 * S, T0_NS + 200 * S, EndReason.PREEMPTED),
        ("slurm:7.1", 16, T0_NS + 200 * S, T0_NS + 300 * S, T0_NS + 500 * S, EndReason.NODE_FAILURE),
        ("slurm:7.2", 16, T0_NS + 500 * S, T0_NS + 900 * S, T0_NS + 1000 * S, EndReason.CANCELLED),
    ]


@pytest.mark.parametrize(
    ("state", "reason", "why"),
    [
        ("COMPLETED", "", EndReason.COMPLETED),
        ("FAILED", "", EndReason.FAILED),
        ("TIMEOUT", "", EndReason.TIMEOUT),
        ("DEADLINE", "", EndReason.TIMEOUT),
        ("OUT_OF_MEMORY", "", EndReason.OOM),
        ("BOOT_FAIL", "", EndReason.NODE_FAILURE),
        ("CANCELLED by 0", "drained for maintenance", EndReason.MAINTENANCE),
        ("FAILED", "maintenance", EndReason.FAILED),
        ("REQUEUED", "", None),
    ],
)
def test_why_a_grant_ended(state: str, reason: str, why: EndReason | None) -> None:
    (found,) = of_text(row(1, state, T0_S, T0_S, T0_S + 5, reason=reason))
    assert found.end_reason is why and found.end_ns == T0_NS + 5 * S


def test_jobs_that_hold_their_gpus_have_no_end_and_waiting_ones_no_grant() -> None:
    text = "\n".join([
        HEAD,
        row(1, "RUNNING", T0_S, T0_S + 1, "Unknown"),
        row(2, "SUSPENDED", T0_S, T0_S + 2, "Unknown"),
        row(3, "PENDING", T0_S, "Unknown", "Unknown", tres=""),
        row(4, "CANCELLED by 1", T0_S, "None", T0_S + 5, tres=""),
        row(5, "RUNNING", T0_S, T0_S + 3, "Unknown", tres="cpu=4,node=1"),
    ])  # fmt: skip
    found = grants_of_sacct(text)
    assert [(one.job, one.end_ns, one.end_reason) for one in found.grants] == [
        ("slurm:1.0", None, None), ("slurm:2.0", None, None),
    ]  # fmt: skip
    assert (found.waiting, found.without_gpus) == (2, 1)
    assert [one.gpus for one in grants_of_sacct(text, gpus=3).grants] == [16, 16, 3]


def test_the_same_life_told_twice_is_one_and_the_ended_one_counts() -> None:
    running, ended = row(1, "RUNNING", T0_S, T0_S, "Unknown"), row(1, "COMPLETED", T0_S, T0_S, T0_S + 9)
    for rows in ([running, ended], [ended, running], [running, ended, ended]):
        (found,) = of_text(*rows)
        assert (found.job, found.end_ns) == ("slurm:1.0", T0_NS + 9 * S)


def test_gpus_by_type_are_added_where_there_is_no_sum() -> None:
    told = {"gres/gpu:a100=4,gres/gpu:h100=8": 12, "gres/gpu=8,gres/gpu:h100=8": 8, "gres/nic=2,gres/gpu=1": 1}
    for tres, gpus in told.items():
        assert of_text(row(1, "RUNNING", T0_S, T0_S, "", tres=tres))[0].gpus == gpus


def test_local_times_are_read_in_this_machines_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        (found,) = of_text(row(1, "RUNNING", "2026-01-01T05:30:00", "2026-01-01T05:31:00", "Unknown"))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (found.submit_ns, found.start_ns) == (T0_NS, T0_NS + 60 * S)


def job_json(**changes: Any) -> dict[str, Any]:
    """A job as Slurm 22.05 prints it."""
    return {
        "job_id": 9,
        "comment": {"administrator": None, "job": None, "system": None},
        "time": {"submission": T0_S, "start": T0_S + 4, "end": T0_S + 8, "suspended": 0},
        "state": {"current": "COMPLETED", "reason": "None"},
        "tres": {
            "allocated": [
                {"type": "cpu", "name": None, "count": 8},
                {"type": "energy", "name": None, "count": None},
                {"type": "gres", "name": "gpu", "count": 8},
                {"type": "gres", "name": "gpu:h100", "count": 8},
            ]
        },
    } | changes


def test_json_of_old_and_new_slurm() -> None:
    (old,) = grants_of_sacct(json.dumps({"meta": {}, "errors": [], "jobs": [job_json()]})).grants
    assert old == Grant(job="slurm:9.0", gpus=8, submit_ns=T0_NS, start_ns=T0_NS + 4 * S, end_ns=T0_NS + 8 * S,
                        end_reason=EndReason.COMPLETED)  # fmt: skip

    def number(value: int) -> dict[str, Any]:
        return {"set": True, "infinite": False, "number": value}

    new = job_json(
        restart_cnt=3,
        state={"current": ["RUNNING"], "reason": "None"},
        time={
            "submission": number(T0_S),
            "start": number(T0_S + 4),
            "end": {"set": False, "infinite": False, "number": 0},
        },
    )
    (found,) = grants_of_sacct(json.dumps({"jobs": [new]})).grants
    assert (found.job, found.start_ns, found.end_ns, found.end_reason) == ("slurm:9.3", T0_NS + 4 * S, None, None)


@pytest.mark.parametrize(
    "text", ["{", '{"jobs": 1}', '{"jobs": [{}]}', "JobID|State\n1|x\n", f"{HEAD}\n1|RUNNING|soon|x|y|z|\n"]
)
def test_what_cannot_be_read_is_told_in_a_line(text: str) -> None:
    with pytest.raises(AllocationError) as told:
        grants_of_sacct(text)
    assert "\n" not in str(told.value) and "sacct" in str(told.value)


def test_the_environment_of_a_job() -> None:
    env = {
        "SLURM_JOB_ID": "5",
        "SLURM_RESTART_COUNT": "2",
        "SLURM_JOB_START_TIME": str(T0_S),
        "SLURM_GPUS_ON_NODE": "8",
        "SLURM_JOB_NUM_NODES": "4",
    }
    assert grant_of_environment(env, run="r") == Grant(job="slurm:5.2", gpus=32, start_ns=T0_NS, run="r")
    assert grant_of_environment(env | {"SLURM_GPUS": "h100:16,a100:8"}).gpus == 24
    assert grant_of_environment({**env, "SLURM_GPUS_ON_NODE": ""}, gpus=2).gpus == 2
    for missing in ("SLURM_JOB_ID", "SLURM_JOB_START_TIME", "SLURM_GPUS_ON_NODE"):
        with pytest.raises(AllocationError):
            grant_of_environment({name: value for name, value in env.items() if name != missing})


def at(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(T0_S + seconds))


def pod(name: str, start: float | None, end: float | None = None, *, gpus: int = 8, phase: str = "Running",
        conditions: tuple[dict[str, Any], ...] = (), reason: str | None = None, exit_reason: str = "Error",
        labels: dict[str, str] | None = None, owner: bool = False) -> dict[str, Any]:  # fmt: skip
    """A pod as the API server tells it."""
    scheduled = [] if start is None else [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(start)}]
    state = {"running": {}} if end is None else {"terminated": {"finishedAt": at(end), "reason": exit_reason}}
    owners = [{"controller": True, "kind": "PyTorchJob", "name": "pt", "uid": "u9"}] if owner else []
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-{name}",
            "creationTimestamp": at(0),
            "labels": labels or {},
            "ownerReferences": owners,
        },
        "spec": {
            "containers": [{"name": "train", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}, {"name": "log"}]
        },
        "status": {
            "phase": phase,
            "conditions": [*scheduled, *conditions],
            "containerStatuses": [{"state": state}],
            **({"reason": reason} if reason else {}),
        },
    }


def of_pods(*pods: dict[str, Any]) -> list[Grant]:
    return list(grants_of_pods(json.dumps({"kind": "List", "items": list(pods)})).grants)


JOB = {"batch.kubernetes.io/job-name": "train", "batch.kubernetes.io/controller-uid": "u1"}


def test_pods_of_a_job_are_one_and_every_change_begins_a_grant() -> None:
    found = of_pods(
        pod("a", 10, 50, phase="Succeeded", labels=JOB),
        pod("b", 10, 60, phase="Succeeded", labels=JOB),
        pod("c", 20, 60, phase="Failed", labels=JOB),
        pod("d", 80, labels=JOB),
    )
    assert {one.job for one in found} == {"k8s:ml/train/u1"} and {one.submit_ns for one in found} == {T0_NS}
    seconds = [(one.gpus, (one.start_ns - T0_NS) // S, one.end_ns and (one.end_ns - T0_NS) // S) for one in found]
    assert seconds == [(16, 10, 20), (24, 20, 50), (16, 50, 60), (8, 80, None)]
    assert [one.end_reason for one in found] == [None, EndReason.COMPLETED, EndReason.FAILED, None]


def test_jobs_are_named_as_the_recorder_names_them() -> None:
    old = {"job-name": "j", "controller-uid": "u2"}
    found = of_pods(pod("a", 1, labels=old), pod("b", 2, owner=True), pod("c", 3))
    assert [one.job for one in found] == ["k8s:ml/j/u2", "k8s:ml/pt/u9", "k8s:ml/c/uid-c"]


def disrupted(reason: str) -> tuple[dict[str, Any], ...]:
    return ({"type": "DisruptionTarget", "status": "True", "reason": reason, "lastTransitionTime": at(30)},)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"conditions": disrupted("PreemptionByScheduler")}, EndReason.PREEMPTED),
        ({"conditions": disrupted("DeletionByTaintManager")}, EndReason.NODE_FAILURE),
        ({"conditions": disrupted("EvictionByEvictionAPI")}, EndReason.MAINTENANCE),
        ({"reason": "DeadlineExceeded"}, EndReason.TIMEOUT),
        ({"reason": "NodeShutdown"}, EndReason.MAINTENANCE),
        ({"exit_reason": "OOMKilled"}, EndReason.OOM),
        ({}, EndReason.FAILED),
    ],
)
def test_why_pods_ended(told: dict[str, Any], why: EndReason) -> None:
    (found,) = of_pods(pod("a", 1, 30, phase="Failed", **told))
    assert (found.end_ns, found.end_reason) == (T0_NS + 30 * S, why)


def test_a_node_that_vanished_leaves_no_time_of_the_containers() -> None:
    gone = pod("a", 1, phase="Failed", conditions=disrupted("DeletionByPodGC"))
    (found,) = of_pods(gone)
    assert (found.end_ns, found.end_reason) == (T0_NS + 30 * S, EndReason.NODE_FAILURE)


def test_pods_that_wait_or_have_no_gpus_are_counted() -> None:
    found = grants_of_pods(json.dumps({"items": [pod("a", None, phase="Pending"), pod("b", 1, gpus=0)]}))
    assert (found.grants, found.waiting, found.without_gpus) == ((), 1, 1)
    assert len(grants_of_pods(json.dumps(pod("a", 1))).grants) == 1
    for text in ("[", "[]", '{"items": [1]}', '{"items": [{"metadata": {"name": "x"}, "spec": {}}]}'):
        with pytest.raises(AllocationError):
            grants_of_pods(text)


def report_of(folder: Path, grants: bytes) -> goodput_analytics.Report:
    """The run of docs/ACCOUNTING.md as a Slurm job that was requeued once, with grants."""
    events = [
        event | ({"job": f"slurm:7.{event['restart_count']}"} if event["kind"] == "start" else {})
        for event in by_hand()
    ]
    (folder / "grants.jsonl").write_bytes(grants)
    ingest_files(folder / "x.duckdb", [write(folder / "e.jsonl", events), folder / "grants.jsonl"])
    con = open_database(folder / "x.duckdb", read_only=True)
    try:
        return goodput_analytics.report(con, "by-hand")
    finally:
        con.close()


def test_the_ledger_follows_the_grants_and_tells_the_wait(tmp_path: Path) -> None:
    first = of_text(row(7, "RUNNING", T0_S - 20, T0_S - 5, "Unknown", tres="gres/gpu=4"))
    whole = of_text(
        row(7, "PREEMPTED", T0_S - 20, T0_S - 5, T0_S + 44, tres="gres/gpu=4"),
        row(7, "COMPLETED", T0_S + 44, T0_S + 45, T0_S + 75, tres="gres/gpu=4"),
    )
    # Told while it ran, and again twice when all was over: the last word counts, once.
    report = report_of(tmp_path, lines([*first, *whole, *whole]))
    assert report.allocated_gpu_s == 4 * (49 + 30)
    assert sum(report.gpu_s.values()) == report.allocated_gpu_s and report.gpu_s["idle"] > 0
    assert report.queue_wait_s == 15 + 1
    assert report.attempts[0].end_cause == "preempted"
    assert report.quality.rejected == {} and report.quality.conflicts == 0


def test_the_command_prints_or_sends_and_sending_twice_changes_nothing(tmp_path: Path) -> None:
    text = "\n".join(
        [HEAD, row(7, "COMPLETED", T0_S, T0_S + 60, T0_S + 200), row(8, "RUNNING", T0_S, T0_S, "", tres="")]
    )
    (tmp_path / "sacct").write_text(text)
    done = goodput("allocation", "slurm", tmp_path / "sacct")
    assert done.returncode == 0
    hint = "give --gpus N if Slurm does not manage them"
    assert done.stderr == f"goodput: 1 grant; left out: 1 job without GPUs ({hint})\n"
    event = json.loads(done.stdout)
    assert (event["kind"], event["job"], event["gpus"], event["end_reason"]) == (
        "allocation",
        "slurm:7.0",
        16,
        "completed",
    )
    (tmp_path / "c").mkdir()
    with Collector(tmp_path / "c", "--no-spool") as collector:
        for _ in range(2):
            done = goodput("allocation", "slurm", "--to", collector.url, input=text)
            assert done.returncode == 0 and done.stdout == "" and "sent to" in done.stderr, done.stderr

        def kept() -> Any:
            body = collector.ask("/metrics")[1].decode()
            return (
                "goodput_collector_events_total 1\n" in body and "goodput_collector_duplicate_events_total 0\n" in body
            )

        eventually(kept)
    for arguments, code, said in (
        (("slurm", tmp_path / "none"), 1, "No such file"),
        (("slurm", "--environment"), 1, "SLURM_JOB_ID"),
        (("kubernetes", tmp_path / "sacct"), 1, "kubectl get pods"),
        (("slurm", tmp_path / "sacct", "--to", "nowhere"), 2, "not a collector's address"),
        (("slurm", tmp_path / "sacct", "--to", "http://127.0.0.1:9"), 1, "does not answer"),
    ):
        bare = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        done = goodput("allocation", *arguments, env=bare)
        assert done.returncode == code and said in " ".join(re.sub("[│╭╮╰╯─]", " ", done.stderr).split()), done.stderr


def test_times_with_zones_are_exact() -> None:
    assert moment_ns("2026-01-01T00:00:00Z") == T0_NS == moment_ns("2026-01-01T02:00:00+02:00")
    assert moment_ns("2026-01-01T00:00:00.000001Z") == T0_NS + 1000


SLURM = Path(__file__).parents[3] / "shared" / "tools" / "slurm-one-node.sh"


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Path]:
    if not SLURM.exists() or os.geteuid() != 0 or shutil.which("slurmctld") is None:
        pytest.skip(
            "no Slurm that this machine could start: it takes root, slurm-wlm and shared/tools/slurm-one-node.sh"
        )
    # Its programs run as other users, who must be able to enter the folder.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            subprocess.run([SLURM, "up", folder], check=True, timeout=100)
            yield tmp_path
        finally:
            subprocess.run([SLURM, "down", folder], check=True, timeout=60)
            time.sleep(3)


def slurm_says(*command: object, folder: Path | None = None) -> str:
    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.soak
def test_a_real_slurm_submits_requeues_and_cancels(slurm: Path) -> None:
    script = slurm / "job.sh"
    script.write_text("#!/bin/sh\nenv | grep ^SLURM > env.$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}\nsleep ${1:-300}\n")
    long = int(slurm_says("sbatch", "--parsable", "--requeue", "-n1", script, folder=slurm))
    short = int(slurm_says("sbatch", "--parsable", "-n1", script, 1, folder=slurm))

    def state(job: int) -> str:
        return slurm_says("squeue", "-h", "-j", job, "-o", "%T", "-t", "all").strip()

    eventually(lambda: (slurm / f"env.{long}.0").exists() and state(long) == "RUNNING", 30, 0.3)
    eventually(lambda: state(short) == "COMPLETED", 30, 0.3)
    slurm_says("scontrol", "requeue", long)

    def again() -> bool:
        if state(long) == "PENDING":
            subprocess.run(["scontrol", "update", f"jobid={long}", "StartTime=now"], capture_output=True, timeout=20)
        return (slurm / f"env.{long}.1").exists() and state(long) == "RUNNING"

    eventually(again, 60, 0.5)

    def held() -> list[bool]:  # accounting hears of it a little later
        grants = grants_of_sacct(slurm_says("sacct", "-D", "--json"), gpus=1).grants
        return [one.end_ns is None for one in grants if one.job == f"slurm:{long}.1"]

    assert eventually(held, 30, 0.5) == [True]
    slurm_says("scancel", long)
    eventually(lambda: state(long) == "CANCELLED", 30, 0.3)

    def told() -> Any:
        found = {one.job: one for one in grants_of_sacct(slurm_says("sacct", "-D", "--json"), gpus=1).grants}
        last = found.get(f"slurm:{long}.1")
        return found if last is not None and last.end_ns is not None else None

    found = eventually(told, 30, 0.5)
    assert found.keys() == {f"slurm:{long}.0", f"slurm:{long}.1", f"slurm:{short}.0"}
    assert found[f"slurm:{short}.0"].end_reason is EndReason.COMPLETED
    assert found[f"slurm:{long}.0"].end_reason is None
    assert found[f"slurm:{long}.1"].end_reason is EndReason.CANCELLED
    assert found[f"slurm:{long}.0"].end_ns <= found[f"slurm:{long}.1"].start_ns
    text = slurm_says("sacct", "-D", "-X", "-P", "-o", "JobIDRaw,State,Submit,Start,End,AllocTRES")
    assert {one.job: one for one in grants_of_sacct(text, gpus=1).grants} == found
    for life in range(2):
        env = dict(one.split("=", 1) for one in (slurm / f"env.{long}.{life}").read_text().splitlines())
        assert env.get("SLURM_RESTART_COUNT", "0") == str(life)
        if "SLURM_JOB_START_TIME" in env:
            told_inside = grant_of_environment(env, gpus=1)
            assert (told_inside.job, told_inside.start_ns) == (
                f"slurm:{long}.{life}",
                found[f"slurm:{long}.{life}"].start_ns,
            )
