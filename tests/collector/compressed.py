"""Hours in seconds: what /metrics says of made lives, minute by minute, given to the alert rules as their input."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import landing_cases
import yaml
from exposed import Key, Watched
from made_events import T0_NS, S

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "goodput.rules.yml"
ALERTS = [
    rule["alert"]
    for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"] if "alert" in rule
]  # fmt: skip


class Life:
    """What the ranks of one run tell, moment by moment; seconds are those since the beginning."""

    def __init__(self, run: str, ranks: int = 2) -> None:
        self.run, self.ranks = run, ranks
        self.events: list[dict[str, Any]] = []
        self._seqs: dict[str, int] = {}
        self._life = -1
        self.now_s = 0.0
        self.step = 0

    def start(self, job: str | None = None) -> None:
        """A new attempt begins now."""
        self._life += 1
        for rank in range(self.ranks):
            self._add(rank, "start", v=1, job=job or f"local:{self.run}:1", restart_count=self._life, rank=rank,
                      local_rank=rank, world_size=self.ranks, node="n", pid=1, devices=1,
                      process_start_ns=self._ns(self.now_s), attempt_token=f"{self.run}-{self._life}")  # fmt: skip
            self._add(rank, "resume", step=self.step or None)

    def steps(self, count: int, took_s: float = 4.0) -> None:
        """Steps, one after another."""
        for _ in range(count):
            begun_s = self.now_s
            self._pass(took_s, "step")
            self.step += 1
            for rank in range(self.ranks):
                self._add(rank, "step", step=self.step, start_ns=self._ns(begun_s), end_ns=self._ns(self.now_s))

    def wait(self, seconds: float, phase: str = "between") -> None:
        """Nothing but heartbeats."""
        self._pass(seconds, phase)

    def span(self, name: str, seconds: float) -> None:
        """A declared span on all ranks."""
        told = {"span": name, "id": f"{name}{len(self.events)}", "step": self.step}
        for rank in range(self.ranks):
            self._add(rank, "begin", **told)
        self._pass(seconds, name)
        for rank in range(self.ranks):
            self._add(rank, "end", **told)

    def stop(self, reason: str) -> None:
        """All ranks end."""
        for rank in range(self.ranks):
            self._add(rank, "stop", reason=reason)

    def _pass(self, seconds: float, phase: str) -> None:
        since_s, end_s = self.now_s, self.now_s + seconds
        while (beat_s := 10.0 * (self.now_s // 10 + 1)) < end_s:
            self.now_s = beat_s
            for rank in range(self.ranks):
                self._add(rank, "heartbeat", step=self.step, phase=phase, phase_since_ns=self._ns(since_s))
        self.now_s = end_s

    def _ns(self, at_s: float) -> int:
        return T0_NS + round(at_s * S)

    def _add(self, number: int, kind: str, /, **fields: Any) -> None:
        source = f"{self.run}-{self._life}-{number}"
        seq = self._seqs[source] = self._seqs.get(source, -1) + 1
        head = {"kind": kind, "run": self.run, "source": source, "seq": seq, "ts_ns": self._ns(self.now_s)}
        self.events.append(head | fields)


def series_of(
    folder: Path, lives: Iterable[Life], minutes: int, arrives: Callable[[dict[str, Any]], float],
    scraped: Callable[[int], bool] = lambda minute: True,
) -> dict[Key, list[str]]:  # fmt: skip
    """What each scrape said, one a minute, of events that arrive when `arrives` says, in seconds."""
    clock_ns = [T0_NS]
    watched = Watched(folder, lambda: clock_ns[0])
    events = sorted((event for life in lives for event in life.events), key=lambda one: (arrives(one), one["ts_ns"]))
    series: dict[Key, list[str]] = {}
    for minute in range(minutes + 1):
        clock_ns[0] = T0_NS + minute * 60 * S
        lines: dict[str, bytes] = {}
        while events and arrives(events[0]) <= minute * 60:
            event = events.pop(0)
            lines[event["source"]] = lines.get(event["source"], b"") + landing_cases.line(event) + b"\n"
        for source, data in lines.items():
            watched.send(source, data)
        values = watched.scrape()[1] if scraped(minute) else {}
        for one, value in values.items():
            at = value - T0_NS / S if one[0].endswith("timestamp_seconds") else value
            series.setdefault(one, ["_"] * minute).append(repr(at))
        for told in series.values():
            told += ["_"] * (minute + 1 - len(told))
    watched.close()
    return series


def fired(folder: Path, series: dict[Key, list[str]], minutes: int) -> dict[str, list[int]]:
    """The alerts about runs that fire, with the minutes at which they do, as promtool sees them."""

    def written(one: Key) -> str:
        inside = ",".join(f'{label}="{text}"' for label, text in sorted(one[1]))
        return f"{one[0]}{{{inside}}}"

    checks = [
        {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": []}
        for minute in range(minutes + 1)
        for name in ALERTS
        if not name.startswith("GoodputCollector")  # of the collector the hour has no scrape
    ]
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "30s",
        "group_eval_order": [group["name"] for group in yaml.safe_load(RULES.read_text())["groups"]],
        "tests": [{
            "interval": "1m",
            "input_series": [{"series": written(one), "values": " ".join(values)} for one, values in series.items()],
            "alert_rule_test": checks,
        }],
    }  # fmt: skip
    file = folder / "hour.yml"
    file.write_text(yaml.safe_dump(test))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, timeout=100)
    found: dict[str, list[int]] = {}
    name = minute = ""
    for text in (done.stdout + done.stderr).splitlines():
        if "alertname:" in text and "time:" in text:
            name, minute = text.split("alertname:")[1].split(",")[0].strip(), text.split("time:")[1].strip(" ,")
            found.setdefault(name, []).append(_minutes(minute))
    assert (done.returncode == 0) == (not found), done.stdout + done.stderr
    return found


def _minutes(text: str) -> int:
    hours, _, rest = text.rpartition("h")
    return 60 * int(hours or 0) + int(rest.partition("m")[0] or 0)
