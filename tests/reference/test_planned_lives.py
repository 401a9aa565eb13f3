"""The reference, held against lives whose truth was added up as they were lived."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from .lives import planned_life
from .planned import Life, S
from .report import reference_report


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(planned_life())
def test_the_reference_tells_the_truth(life: Life) -> None:
    report = reference_report(life.events, life.run)
    truth = life.truth
    assert {c: ns for c, ns in report["_gpu_ns"].items() if ns} == {str(c): n for c, n in truth.gpu_ns.items() if n}
    assert len(report["attempts"]) == truth.attempts
    assert report["state"] == truth.state
    assert report["queue_wait_s"] == (None if truth.queue_wait_ns is None else truth.queue_wait_ns / S)
    assert {row["rank"] for row in report["stragglers"]} == truth.named_ranks
    assert report["checkpoints"]["count"] == truth.saves
    assert report["at_risk_gpu_s"] == (None if truth.at_risk_gpu_ns is None else truth.at_risk_gpu_ns / S)
    assert len(report["incidents"]) == len(truth.incidents)
    for told, true in zip(report["incidents"], truth.incidents, strict=True):
        expected = {
            "attempt": true.attempt,
            "cause": true.cause,
            "abort_ns": true.abort_ns,
            "detection_s": true.detection_ns / S,
            "recovered_ns": true.recovered_ns,
            "lost_steps": true.lost_steps,
            "hang_gpu_s": true.hang_gpu_ns / S,
            "rework_gpu_s": true.rework_gpu_ns / S,
            "restart_gpu_s": true.restart_gpu_ns / S,
        }
        if true.suspect_ranks is not None:
            expected["suspect_ranks"] = true.suspect_ranks
        assert {k: told[k] for k in expected} == expected
