"""What deploy/ holds: units, manifests, Slurm's scripts and the board, each held by what can check it here."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from goodput_analytics.colours import CATEGORY_COLOURS
from goodput_collector.exposition import Kind
from goodput_collector.metrics import FAMILIES

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted(path for path in (DEPLOY / "systemd").iterdir() if path.suffix in (".service", ".timer"))
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
SCRIPTS = sorted((DEPLOY / "slurm").glob("*.sh"))
BOARD = json.loads((DEPLOY / "grafana" / "goodput.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]


def documents(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def kinds(*wanted: str) -> list[Any]:
    return [
        pytest.param(one, id=f"{one['kind']}-{one['metadata']['name']}")
        for path in MANIFESTS for one in documents(path) if one["kind"] in wanted
    ]  # fmt: skip


def pod_of(workload: dict[str, Any]) -> dict[str, Any]:
    spec = workload["spec"]
    if workload["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    found: dict[str, Any] = spec["template"]["spec"]
    return found


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing: apt-get install systemd"
)
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_takes_the_units(unit: Path, tmp_path: Path) -> None:
    for one in UNITS:  # a timer is verified with its service
        # Where goodput is installed differs from site to site; here it is any program.
        (tmp_path / one.name).write_text(one.read_text().replace("/usr/local/bin/goodput", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / unit.name], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and str(tmp_path) not in done.stderr, done.stderr


CALL = re.compile(r"(?<=goodput )(?:allocation \w+|collect|agent)\b[^|;&'\n]*")


def commands() -> list[tuple[str, str]]:
    """The goodput commands that units, scripts and manifests call, each with where it stands."""
    texts = [(path.name, path.read_text().replace("\\\n", " ")) for path in [*UNITS, *SCRIPTS]]
    for path in MANIFESTS:
        for one in documents(path):
            if one["kind"] in ("StatefulSet", "DaemonSet", "Job", "CronJob"):
                pod = pod_of(one)
                containers = [*pod.get("initContainers", []), *pod["containers"]]
                texts += [(path.name, " ".join(container.get("command", []))) for container in containers]
    return [(where, call) for where, text in texts for call in CALL.findall(text)]


def test_every_command_has_the_options_that_it_is_called_with() -> None:
    found = [(where, call) for where, call in commands() if "--" in call]
    assert {where for where, _ in found} >= {
        "goodput-collector.service", "goodput-agent@.service", "goodput-slurm.service", "collector.yaml", "epilog.sh",
        "agent-daemonset.yaml", "agent-sidecar.yaml", "allocation-cronjob.yaml", "prolog.sh",
    }  # fmt: skip
    helps: dict[str, str] = {}
    for where, call in found:
        words = call.split()
        name = " ".join(words[: 2 if words[0] == "allocation" else 1])
        if name not in helps:
            asked = [sys.executable, "-m", "goodput.cli", *name.split(), "--help"]
            wide = os.environ | {"COLUMNS": "200"}
            done = subprocess.run(asked, capture_output=True, text=True, timeout=60, env=wide)
            assert done.returncode == 0, name
            helps[name] = done.stdout
        for option in re.findall(r"--[a-z-]+", call):
            assert option in helps[name], (where, name, option)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is missing: apt-get install shellcheck")
def test_shellcheck_has_nothing_to_say() -> None:
    done = subprocess.run(["shellcheck", *SCRIPTS], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def run_script(name: str, folder: Path, **environment: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """Runs one with programs of our own in the place of goodput and sacct; how long it took."""
    for program in ("goodput", "sacct"):
        made = folder / program
        made.write_text(
            f'#!/bin/sh\n[ {program} = sacct ] || cat > "{folder}/stdin"\necho "$0 $*" >> "{folder}/calls"\n'
        )
        made.chmod(0o755)
    begun = time.monotonic()
    done = subprocess.run(
        [DEPLOY / "slurm" / name], capture_output=True, text=True, timeout=30,
        env={"PATH": f"{folder}:/usr/bin:/bin", **environment},
    )  # fmt: skip
    return done, time.monotonic() - begun


def calls(folder: Path, most_s: float = 10) -> str:
    deadline = time.monotonic() + most_s
    while time.monotonic() < deadline:
        if (folder / "calls").exists() and "goodput" in (folder / "calls").read_text():
            return (folder / "calls").read_text()
        time.sleep(0.05)
    return ""


def test_the_prolog_tells_once_per_job_and_never_holds_it_up(tmp_path: Path) -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_START_TIME": "1", "SLURM_JOB_USER": "alice"}
    done, took_s = run_script("prolog.sh", tmp_path, SLURM_PROCID="3", **job)
    assert (done.returncode, done.stdout) == (0, "export GOODPUT_SPOOL=/var/tmp/goodput-alice\n")
    assert took_s < 5 and not (tmp_path / "calls").exists()
    done, _ = run_script("prolog.sh", tmp_path, SLURM_PROCID="0", GOODPUT_COLLECTOR="http://c:1", **job)
    assert done.returncode == 0
    assert "goodput allocation slurm --environment --to http://c:1 --token-file /etc/goodput/token" in calls(tmp_path)


def test_the_epilog_asks_accounting_for_all_lives_in_the_background(tmp_path: Path) -> None:
    assert run_script("epilog.sh", tmp_path)[0].returncode == 0
    assert not (tmp_path / "calls").exists()
    done, took_s = run_script("epilog.sh", tmp_path, SLURM_JOB_ID="7", GOODPUT_ACCOUNTING_DELAY_S="1")
    assert done.returncode == 0 and took_s < 1
    told = calls(tmp_path)
    assert "sacct -D --json -j 7" in told and "goodput allocation slurm --to http://collector" in told


@pytest.mark.skipif(
    importlib.util.find_spec("kubernetes_validate") is None,
    reason="the schemas of Kubernetes are missing: pip install kubernetes-validate",
)
@pytest.mark.parametrize("path", [one for one in MANIFESTS if one.name != "monitors.yaml"], ids=lambda path: path.name)
def test_manifests_are_as_the_schemas_of_kubernetes_say(path: Path) -> None:
    import kubernetes_validate

    for one in documents(path):
        kubernetes_validate.validate(one, desired_version="1.29", strict=True)


@pytest.mark.parametrize("workload", kinds("StatefulSet", "DaemonSet", "Job", "CronJob"))
def test_workloads_hang_together(workload: dict[str, Any]) -> None:
    pod = pod_of(workload)
    volumes = {one["name"] for one in pod.get("volumes", [])}
    volumes |= {one["metadata"]["name"] for one in workload["spec"].get("volumeClaimTemplates", [])}
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        mounts = {one["name"]: one["mountPath"] for one in container.get("volumeMounts", [])}
        assert mounts.keys() <= volumes, container["name"]
        words = " ".join(container.get("command", []))
        ours = "registry.example.com/goodput" in container["image"] and "goodput" in words
        if not ours:
            continue
        assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["resources"]["limits"]["memory"] and container["resources"]["requests"]["memory"]
        for place in re.findall(r"--(?:db|token-file|read-token-file|spool)[= ](/\S+)", words):
            assert any(place.startswith(f"{mount}/") for mount in mounts.values()), place
    if "selector" in workload["spec"]:
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_the_service_and_the_monitors_find_the_collector() -> None:
    found = {one["kind"]: one for path in MANIFESTS for one in documents(path)}
    pod = found["StatefulSet"]["spec"]["template"]
    (port,) = pod["spec"]["containers"][0]["ports"]
    assert f":{port['containerPort']}" in " ".join(pod["spec"]["containers"][0]["command"])
    service = found["Service"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert [one["targetPort"] for one in service["spec"]["ports"]] == [port["name"]]
    for kind, key, labels in (
        ("ServiceMonitor", "endpoints", service["metadata"]["labels"]),
        ("PodMonitor", "podMetricsEndpoints", pod["metadata"]["labels"]),
    ):
        spec = found[kind]["spec"]
        assert spec["selector"]["matchLabels"].items() <= labels.items()
        (endpoint,) = spec[key]
        assert endpoint["port"] == "http" and endpoint["path"] == "/metrics"
        assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "goodput"}]
        assert endpoint["authorization"]["credentials"] == {"name": "goodput-token", "key": "read-token"}
    for probe in ("livenessProbe", "startupProbe"):
        assert pod["spec"]["containers"][0][probe]["httpGet"] == {"path": "/healthz", "port": "http"}


def test_a_pod_tells_what_the_recorder_and_the_adapter_call_its_job() -> None:
    from goodput.identity import K8S_JOB_NAME, K8S_JOB_UID, K8S_NAMESPACE, K8S_NODE

    (job,) = (one for path in MANIFESTS for one in documents(path) if one["kind"] == "Job")
    env = {one["name"]: one for one in pod_of(job)["containers"][0]["env"]}
    told = {name: one["valueFrom"]["fieldRef"]["fieldPath"] for name, one in env.items() if "valueFrom" in one}
    assert told[K8S_NAMESPACE] == "metadata.namespace" and told[K8S_NODE] == "spec.nodeName"
    assert told[K8S_JOB_NAME] == "metadata.labels['batch.kubernetes.io/job-name']"
    assert told[K8S_JOB_UID] == "metadata.labels['batch.kubernetes.io/controller-uid']"


def test_the_board_is_made_from_its_source() -> None:
    done = subprocess.run(
        [sys.executable, DEPLOY / "grafana" / "make_board.py", "--check"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_every_panel_says_what_it_shows_in_which_unit(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".") and panel["fieldConfig"]["defaults"]["unit"] and panel["targets"]
    assert all(target["legendFormat"] and target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])


def test_the_board_uses_only_metrics_that_are_there() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "goodput.rules.yml").read_text())
    known = {rule["record"] for group in rules["groups"] for rule in group["rules"] if "record" in rule}
    for family in FAMILIES:
        known |= {family.sample_name}
        known |= {f"{family.name}_bucket"} if family.kind is Kind.HISTOGRAM else set()
    used: set[str] = set()
    for panel in PANELS:
        for target in panel["targets"]:
            used |= set(re.findall(r"\b(?:goodput_\w+|\w+:goodput\w*:\w+)", target["expr"]))
    assert used <= known, used - known
    # What is told of runs is shown, but for the bare labels.
    shown = used | set(re.findall(r"goodput_\w+", (DEPLOY / "prometheus" / "goodput.rules.yml").read_text()))
    missing = {one.sample_name for one in FAMILIES if one.kind is not Kind.HISTOGRAM} - shown
    assert missing == {"goodput_run_info", "goodput_collector_start_timestamp_seconds"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is missing: apt-get install prometheus")
def test_prometheus_understands_every_query_of_the_board(tmp_path: Path) -> None:
    exprs = [target["expr"].replace("$run", "x") for panel in PANELS for target in panel["targets"]]
    groups = [{"name": "board", "rules": [{"record": f"x{index}", "expr": expr} for index, expr in enumerate(exprs)]}]
    (tmp_path / "board.yml").write_text(json.dumps({"groups": groups}))
    done = subprocess.run(
        ["promtool", "check", "rules", tmp_path / "board.yml"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_panels_do_not_overlap_and_have_the_reports_colours() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    by_category = [panel for panel in PANELS if any("{{category}}" in one["legendFormat"] for one in panel["targets"])]
    assert len(by_category) >= 3
    for panel in by_category:
        colours = {
            one["matcher"]["options"]: one["properties"][0]["value"]["fixedColor"]
            for one in panel["fieldConfig"]["overrides"]
        }
        assert colours == CATEGORY_COLOURS
