"""Grants of Kubernetes, from pod objects as `kubectl get pods -o json` prints them. Pure.

The pods of one Job, or of another controller, are one job: it holds the sum of their GPUs, and every change of that sum
begins a grant. All pods of a job must be in one listing, ended ones too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from goodput_collector.allocation import AllocationError, EndReason, Grant, Grants, load_json, moment_ns

RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915")
"""What is counted as a GPU."""
_JOB_LABELS = (
    ("batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"),
    ("job-name", "controller-uid"),
)
_DISRUPTED = {
    "PreemptionByScheduler": EndReason.PREEMPTED,
    "PreemptionByKubeScheduler": EndReason.PREEMPTED,
    "DeletionByTaintManager": EndReason.NODE_FAILURE,
    "DeletionByPodGC": EndReason.NODE_FAILURE,
    "EvictionByEvictionAPI": EndReason.MAINTENANCE,
    "TerminationByKubelet": EndReason.NODE_FAILURE,
}
_SAID = {
    "DeadlineExceeded": EndReason.TIMEOUT,
    "Preempting": EndReason.PREEMPTED,
    "NodeLost": EndReason.NODE_FAILURE,
    "NodeShutdown": EndReason.MAINTENANCE,
    "Shutdown": EndReason.MAINTENANCE,
    "Terminated": EndReason.MAINTENANCE,
}
# Of several pods that end at once the one that says most about the cause.
_GRAVITY = (
    EndReason.MAINTENANCE, EndReason.PREEMPTED, EndReason.NODE_FAILURE, EndReason.OOM, EndReason.TIMEOUT,
    EndReason.CANCELLED, EndReason.FAILED, EndReason.COMPLETED,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pod:
    """One pod's hold on GPUs."""

    job: str
    gpus: int
    submit_ns: int
    start_ns: int
    end_ns: int | None
    why: EndReason | None


def grants_of_pods(text: str, *, run: str | None = None, resources: Sequence[str] = RESOURCES) -> Grants:
    """The grants of the pods in a listing. Raises AllocationError."""
    told = load_json(text, "kubectl get pods -o json")
    items = told.get("items") if isinstance(told, dict) and "items" in told else [told]
    if not isinstance(items, list) or not all(isinstance(one, dict) and "metadata" in one for one in items):
        raise AllocationError("This is not the JSON of pods: pipe in `kubectl get pods -o json`.")
    waiting = without = 0
    by_job: dict[str, list[_Pod]] = {}
    for item in items:
        if item.get("kind", "Pod") != "Pod":
            continue
        try:
            gpus = _gpus(item, resources)
            pod = _pod(item, gpus)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            name = str(item["metadata"].get("name", "?"))[:80] if isinstance(item["metadata"], dict) else "?"
            raise AllocationError(f"The pod {name} cannot be read ({error!r}).") from error
        if not gpus:
            without += 1
        elif pod is None:
            waiting += 1
        else:
            by_job.setdefault(pod.job, []).append(pod)
    found = [grant for pods in by_job.values() for grant in _grants(pods, run)]
    ordered = sorted(found, key=lambda one: (one.start_ns, one.job))
    return Grants(grants=tuple(ordered), waiting=waiting, without_gpus=without)


def _grants(pods: Sequence[_Pod], run: str | None) -> Iterable[Grant]:
    """The sum over the pods as it changes."""
    moments = sorted({pod.start_ns for pod in pods} | {pod.end_ns for pod in pods if pod.end_ns is not None})
    submit_ns = min(pod.submit_ns for pod in pods)
    for start_ns, end_ns in zip(moments, [*moments[1:], None], strict=True):
        held = [pod for pod in pods if pod.start_ns <= start_ns and (pod.end_ns is None or pod.end_ns > start_ns)]
        if not held:
            continue
        whys = {pod.why for pod in held if pod.end_ns == end_ns and pod.why is not None}
        yield Grant(
            job=held[0].job,
            gpus=sum(pod.gpus for pod in held),
            submit_ns=submit_ns,
            start_ns=start_ns,
            end_ns=end_ns,
            end_reason=next((why for why in _GRAVITY if end_ns is not None and why in whys), None),
            run=run,
        )


def _pod(item: dict[str, Any], gpus: int) -> _Pod | None:
    """A pod that holds, or held, its GPUs; None for one that waits for a node."""
    metadata, status = item["metadata"], item.get("status", {})
    conditions = {one["type"]: one for one in status.get("conditions") or []}
    scheduled = conditions.get("PodScheduled", {})
    started = scheduled.get("lastTransitionTime") if scheduled.get("status") == "True" else status.get("startTime")
    if started is None:
        return None
    start_ns = moment_ns(started)
    end_ns = _end_ns(status, conditions)
    return _Pod(
        job=_job(metadata),
        gpus=gpus,
        submit_ns=moment_ns(metadata["creationTimestamp"]),
        start_ns=start_ns,
        end_ns=None if end_ns is None else max(end_ns, start_ns),
        why=None if end_ns is None else _why(status, conditions),
    )


def _job(metadata: dict[str, Any]) -> str:
    """The job's name as the recorder writes it."""
    space, labels = metadata["namespace"], metadata.get("labels") or {}
    for name, uid in _JOB_LABELS:
        if name in labels and uid in labels:
            return f"k8s:{space}/{labels[name]}/{labels[uid]}"
    for owner in metadata.get("ownerReferences") or []:
        if owner.get("controller"):
            return f"k8s:{space}/{owner['name']}/{owner['uid']}"
    return f"k8s:{space}/{metadata['name']}/{metadata['uid']}"


def _gpus(item: dict[str, Any], resources: Sequence[str]) -> int:
    total = 0
    for container in item["spec"]["containers"]:
        limits = (container.get("resources") or {}).get("limits") or {}
        for name in resources:
            count = str(limits.get(name, "0"))
            if not re.fullmatch(r"[0-9]+", count):
                raise ValueError(f"{name} is {count}")
            total += int(count)
    return total


def _end_ns(status: dict[str, Any], conditions: dict[str, Any]) -> int | None:
    if status.get("phase") not in ("Succeeded", "Failed"):
        return None
    ended = [one["finishedAt"] for one in _terminated(status) if one.get("finishedAt")]
    if not ended:
        told = (conditions.get(name, {}) for name in ("DisruptionTarget", "ContainersReady", "Ready"))
        ended = [one["lastTransitionTime"] for one in told if one.get("lastTransitionTime")][:1]
    return max(map(moment_ns, ended)) if ended else None


def _why(status: dict[str, Any], conditions: dict[str, Any]) -> EndReason:
    if status["phase"] == "Succeeded":
        return EndReason.COMPLETED
    disrupted = conditions.get("DisruptionTarget", {})
    if disrupted.get("status") == "True" and disrupted.get("reason") in _DISRUPTED:
        return _DISRUPTED[disrupted["reason"]]
    if status.get("reason") in _SAID:
        return _SAID[status["reason"]]
    if any(one.get("reason") == "OOMKilled" for one in _terminated(status)):
        return EndReason.OOM
    return EndReason.FAILED


def _terminated(status: dict[str, Any]) -> list[dict[str, Any]]:
    states = (one.get("state") or {} for one in status.get("containerStatuses") or [])
    return [state["terminated"] for state in states if "terminated" in state]
