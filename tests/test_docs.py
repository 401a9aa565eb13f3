"""The documentation names everything there is, and nothing that is not there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import goodput
from goodput.cli import build_app, installed_sources
from goodput_analytics.model import Category

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def commands() -> dict[str, list[str]]:
    """Every subcommand with its long options."""
    app, broken = build_app(installed_sources())
    assert broken == []
    group = typer.main.get_command(app)
    return {
        name: [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
        for name, command in group.commands.items()  # type: ignore[attr-defined]
    }


def test_the_readme_names_every_command_and_option() -> None:
    missing = [name for name in commands() if f"goodput {name}" not in README]
    missing += [option for options in commands().values() for option in options if option not in README]
    assert missing == []


def test_the_readme_names_no_command_that_is_not_there() -> None:
    named = set(re.findall(r"^goodput (\w+)|`goodput (\w+)", README, re.MULTILINE))
    assert {a or b for a, b in named} == set(commands())


def test_the_readme_names_every_setting_and_no_other() -> None:
    # GOODPUT_DEMO_* is how the demonstration speaks to its own processes: no setting.
    in_code = {
        name
        for room in ("instrumentation", "collector", "analytics", "dashboard")
        for file in (ROOT / room).rglob("*.py")
        for name in re.findall(r"""["'](GOODPUT_(?!DEMO_)[A-Z_]+)["']""", file.read_text())
    }
    assert set(re.findall(r"^\| `(GOODPUT_[A-Z_]+)`", README, re.MULTILINE)) == in_code


def test_the_loop_in_the_readme_records_what_it_says(tmp_path: Path) -> None:
    (loop,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    around = "loader = range(251)\ntrain_on = save = lambda thing: None\nload_checkpoint = lambda: {}\n"

    def lines_of(last: int | None) -> list[dict[str, object]]:
        spool = tmp_path / str(last)
        command = [sys.executable, "-c", around.format(last) + loop]
        subprocess.run(command, env=os.environ | {"GOODPUT_SPOOL": str(spool)}, check=True)
        return [json.loads(line) for file in sorted(spool.glob("*.jsonl")) for line in file.read_text().splitlines()]

    fresh = [line for line in lines_of(None) if line["kind"] in ("resume", "step")]
    assert (fresh[0]["step"], fresh[1]["step"] - fresh[1].get("count", 1) + 1) == (None, 0)  # type: ignore[operator]
    lines = lines_of(250)
    told = {kind: [line for line in lines if line["kind"] == kind] for kind in {line["kind"] for line in lines}}
    assert told["resume"][0]["step"] == 250
    assert max(line["step"] for line in told["step"]) == 501  # type: ignore[type-var]
    assert [(line["span"], line["step"], line.get("ok", True)) for line in told["end"]] == [("checkpoint", 500, True)]
    assert [line["reason"] for line in told["stop"]] == ["finished"]


def test_the_readme_names_every_call_of_the_recorder_and_no_other() -> None:
    calls = {name for name in vars(goodput.Recorder) if not name.startswith("_")}
    named = set(re.findall(r"\brec\.(\w+)", README))
    assert named <= calls
    assert calls - named == {"run", "source", "active"}


@pytest.mark.parametrize("page", ["README.md", "docs/ACCOUNTING.md"])
def test_every_category_is_defined(page: str) -> None:
    defined = re.findall(r"^\| `(\w+)` \|", (ROOT / page).read_text(), re.MULTILINE)
    assert [word for word in defined if word in set(Category)] == [category.value for category in Category]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    headings = {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in headings, target
        elif not target.startswith(("http://", "https://")):
            assert (page.parent / target.partition("#")[0]).exists(), target


def test_every_dependency_has_its_reason() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text()
    declared = set(re.findall(r'"([a-z][a-z0-9-]+)[><=]', pyproject))
    record = (ROOT / "docs" / "adr" / "0002-dependencies.md").read_text()
    assert declared >= {"duckdb", "torch", "hatchling"}
    assert [name for name in sorted(declared) if not re.search(rf"\b{name}\b", record)] == []


def test_every_test_that_a_promise_rests_on_is_there() -> None:
    sources = {path.name: path.read_text() for path in ROOT.glob("tests/**/test_*.py")}
    named = set(re.findall(r"`(?:tests/\w+/)?(test_\w+)(?:\.py)?`", (ROOT / "docs" / "HARMLESS.md").read_text()))
    assert named
    written = "".join(sources.values())
    assert [name for name in named if f"{name}.py" not in sources and f"def {name}(" not in written] == []
