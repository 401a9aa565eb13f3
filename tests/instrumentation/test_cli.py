"""The `goodput` command: finds what the rooms offer, survives a broken one, and explains errors in one line."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest
import typer

from goodput.cli import installed_sources, main

ROOMS = [str(Path(__file__).parents[2] / room) for room in ("instrumentation", "collector", "analytics", "dashboard")]
HEAVY = ("duckdb", "pyarrow", "pandas", "numpy", "torch", "rich", "streamlit", "goodput_analytics")


class Source:
    """A room for tests: `load` gives what it was made with, or raises it."""

    def __init__(self, name: str, offered: object) -> None:
        self.name = name
        self.offered = offered

    def load(self) -> object:
        if isinstance(self.offered, BaseException):
            raise self.offered
        return self.offered


def offering(**commands: Callable[..., object]) -> typer.Typer:
    app = typer.Typer()
    for name, command in commands.items():
        app.command(name)(command)
    return app


def python(code: str, *, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    path = {"PYTHONPATH": os.pathsep.join(ROOMS)}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | path | (env or {}), check=False
    )


def one_error_line(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("goodput: ")
    assert err.count("\n") == 1
    return err


def test_runs_the_command_that_a_room_offers(capsys: pytest.CaptureFixture[str]) -> None:
    def hello(name: str) -> None:
        print(f"hello {name}")

    assert main(["hello", "you"], [Source("a", offering(hello=hello))]) == 0
    assert capsys.readouterr() == ("hello you\n", "")


def test_commands_of_all_rooms_stand_at_the_top_level(capsys: pytest.CaptureFixture[str]) -> None:
    def nothing() -> None: ...

    sources = [Source("a", offering(first=nothing, second=nothing)), Source("b", offering(third=nothing))]
    assert main([], sources) == 0
    out = capsys.readouterr().out
    assert [word in out for word in ("first", "second", "third", "--version", "Example:")] == [True] * 5


@pytest.mark.parametrize("trouble", [ImportError("no thing"), RuntimeError("boom"), SystemExit(3), "not a typer app"])
def test_a_broken_room_takes_only_its_own_commands_away(trouble: object, capsys: pytest.CaptureFixture[str]) -> None:
    def hello() -> None:
        print("hello")

    assert main(["hello"], [Source("bad", trouble), Source("good", offering(hello=hello))]) == 0
    out, err = capsys.readouterr()
    assert out == "hello\n"
    assert err.startswith("goodput: the commands of 'bad' are left out: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["hallo"], "No such command 'hallo'"),
        (["hello"], "'. See: goodput hello --help"),
        (["hello", "a", "b"], "See: goodput hello --help"),
        (["hello", "a", "--loud"], "--loud"),
        (["hello", "a", "--times", "x"], "Invalid value for '--times'"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(args: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    def hello(name: str, times: int = 1) -> None: ...

    def other() -> None: ...

    assert main(args, [Source("a", offering(hello=hello, other=other))]) == 2
    assert says in one_error_line(capsys)


def test_a_commands_own_exit_status_is_kept() -> None:
    def give(status: int) -> None:
        raise typer.Exit(status)

    source = Source("a", offering(give=give))
    assert [main(["give", str(status)], [source]) for status in (0, 1, 7)] == [0, 1, 7]


def test_an_unexpected_error_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def bad() -> None:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.delenv("GOODPUT_DEBUG", raising=False)
    assert main(["bad"], [Source("a", offering(bad=bad))]) == 1
    line = one_error_line(capsys)
    assert "ZeroDivisionError: two lines" in line
    assert "GOODPUT_DEBUG=1" in line

    monkeypatch.setenv("GOODPUT_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["bad"], [Source("a", offering(bad=bad))])


def test_an_interrupt_is_status_130(capsys: pytest.CaptureFixture[str]) -> None:
    def wait() -> None:
        raise KeyboardInterrupt

    assert main(["wait"], [Source("a", offering(wait=wait))]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error() -> None:
    code = (
        "import sys, typer\n"
        "from goodput.cli import main\n"
        "app = typer.Typer()\n"
        "@app.command()\n"
        "def flood():\n    [print('x' * 1000) for _ in range(1000)]\n"
        "class Room:\n    name = 'a'\n    load = lambda self: app\n"
        "sys.exit(main(['flood'], [Room()]))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(ROOMS)},
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


def test_the_bare_install_says_which_extra_to_add() -> None:
    code = "import sys\nsys.modules['typer'] = None\nfrom goodput.cli import main\nsys.exit(main(ARGS))\n"
    bare = python(code.replace("ARGS", "[]"))
    assert (bare.returncode, bare.stdout) == (2, "")
    assert bare.stderr == (
        "goodput: this install is the bare one, with `goodput run` and `goodput doctor`; all else needs "
        "pip install 'goodput-ledger[collector]', or in a checkout pip install '.[collector]'\n"
    )
    told = python(code.replace("ARGS", "['--version']"))
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith("goodput ")


def test_this_install_offers_the_collectors_commands(capsys: pytest.CaptureFixture[str]) -> None:
    names = [source.name for source in installed_sources()]
    assert "collector" in names
    assert len(names) == len(set(names))
    assert main(["--help"]) == 0
    out, err = capsys.readouterr()
    assert [word in out for word in ("ingest", "report", "demo")] == [True] * 3
    assert err == ""


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom goodput.cli import main\nmain(['--help'])\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    assert python(code).stdout.splitlines()[-1] == "[]"


def test_help_takes_little_longer_than_what_it_stands_on() -> None:
    def seconds(code: str) -> float:
        started = time.perf_counter()
        assert python(code).returncode == 0
        return time.perf_counter() - started

    # Both figures come from the same moments, so that a busy machine slows both.
    pairs = [
        (seconds("import typer, importlib.metadata"), seconds("from goodput.cli import main; main(['--help'])"))
        for _ in range(5)
    ]
    floor_s, help_s = (median(times) for times in zip(*pairs, strict=True))
    assert help_s < 2.5 * floor_s
