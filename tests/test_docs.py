"""The documentation names everything there is, and nothing that is not there."""

import re
from pathlib import Path

import pytest
import typer

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
