"""The `goodput` command: finds the subcommands that the installed rooms offer, and runs one.

A room offers a `typer.Typer` under the entry-point group `goodput.commands`; its commands appear at the top level. So
no room imports another, and one that is broken takes nothing but its own commands away. Only the standard library is
imported here until a command runs: this file is part of the bare install.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import typer

GROUP = "goodput.commands"
DEBUG_VARIABLE = "GOODPUT_DEBUG"
NEEDS_COLLECTOR = (
    "this install is the bare one, with `goodput run` and `goodput doctor`; all else needs "
    "pip install 'goodput-ledger[collector]', or in a checkout pip install '.[collector]'"
)

OWN = {
    "run": "Run a training command and record it, without any change to its code.",
    "doctor": "Try out whether this machine can record.",
}
"""Commands of this room. They run without typer: in training images the recorder is all that is installed."""

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

_LEAVE_ARGUMENTS = {"ignore_unknown_options": True, "allow_extra_args": True}


class CommandSource(Protocol):
    """What this module needs of an entry point."""

    @property
    def name(self) -> str: ...
    def load(self) -> object: ...


def installed_sources() -> list[CommandSource]:
    """The rooms that offer commands, in order of their names; each once, however often the package is on the path."""
    from importlib.metadata import entry_points

    by_name: dict[str, CommandSource] = {point.name: point for point in entry_points(group=GROUP)}
    return [by_name[name] for name in sorted(by_name)]


def version() -> str:
    """The version of the installed distribution, or "unknown" when the source tree runs without being installed."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed_version

    try:
        return installed_version("goodput-ledger")
    except PackageNotFoundError:
        return "unknown"


def build_app(sources: Iterable[CommandSource]) -> tuple[typer.Typer, list[str]]:
    """The whole command from what each source offers, and a plain sentence for each source that could not be loaded."""
    import typer

    app = typer.Typer(
        name="goodput",
        help="Where did the GPU time of a training run go? Every GPU-second is entered once, in one category.",
        epilog="Example: goodput demo",
        add_completion=False,
        rich_markup_mode=None,  # plain help: loading rich would double the time to the first line
        pretty_exceptions_enable=False,
    )

    def show_version(wanted: bool) -> None:
        if wanted:
            typer.echo(f"goodput {version()}")
            raise typer.Exit

    @app.callback()
    def top(
        version: bool = typer.Option(
            False, "--version", help="Print the version and exit.", is_eager=True, callback=show_version
        ),
    ) -> None:
        pass

    for name, help_ in OWN.items():
        app.command(name, help=help_, add_help_option=False, context_settings=_LEAVE_ARGUMENTS)(_own_command(name))
    broken: list[str] = []
    for source in sources:
        # A room's import can fail in any way, SystemExit included; the other rooms must go on working.
        try:
            offered = source.load()
            if not isinstance(offered, typer.Typer):
                raise TypeError(f"it offers {type(offered).__name__}, not typer.Typer")
        except (Exception, SystemExit) as error:
            broken.append(f"the commands of {source.name!r} are left out: {_one_line(error)}")
        else:
            app.add_typer(offered)
    return app, broken


def _own_command(name: str) -> Callable[[typer.Context], None]:
    import typer

    def command(context: typer.Context) -> None:
        raise typer.Exit(_run_own(name, context.args))

    # Postponed annotations are looked up in the module, which does not import typer.
    command.__annotations__["context"] = typer.Context
    return command


def _run_own(name: str, arguments: list[str]) -> int:
    if name == "run":
        from goodput.launch import main as run

        return run(arguments)
    from goodput.doctor import main as doctor

    return doctor(arguments)


def main(argv: Sequence[str] | None = None, sources: Iterable[CommandSource] | None = None) -> int:
    """Run the command line and return its exit status: 0 done, 1 failed, 2 bad usage, 130 interrupted.

    Args:
        argv: the arguments after the program's name; `sys.argv` when None.
        sources: where the subcommands come from; the installed rooms when None.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    _show_what_can_be_shown()
    if args == ["--version"]:  # so that the bare install can tell its version too
        print(f"goodput {version()}")
        return 0
    if args[:1] and args[0] in OWN:
        try:
            status = _run_own(args[0], args[1:])
            sys.stdout.flush()
            return status
        except BrokenPipeError:
            return _leave_closed_pipe()
    try:
        import typer
    except ImportError:
        return _fail(NEEDS_COLLECTOR, EXIT_USAGE)
    app, broken = build_app(installed_sources() if sources is None else sources)
    for sentence in broken:
        print(f"goodput: {sentence}", file=sys.stderr)
    try:
        result = typer.main.get_command(app).main(args or ["--help"], prog_name="goodput", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except BrokenPipeError:
        return _leave_closed_pipe()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        return _explain(error)


def _show_what_can_be_shown() -> None:
    """Let a terminal that knows ASCII alone get `?` for other characters: no output may end in an error of its own."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)  # whoever replaced the stream may have taken another type
        if reconfigure is not None:
            reconfigure(errors="replace")


def _explain(error: Exception) -> int:
    """Say in one line what went wrong, and return the exit status for it."""
    if hasattr(error, "format_message"):  # what typer raises for bad usage; its base class has moved between releases
        context = getattr(error, "ctx", None)
        where = context.command_path if context is not None else "goodput"
        message = " ".join(str(error.format_message()).split()).removeprefix("Invalid value: ")
        full_stop = "" if message.endswith((".", "?", "!")) else "."
        return _fail(f"{message}{full_stop} See: {where} --help", cast(int, getattr(error, "exit_code", EXIT_USAGE)))
    if type(error).__name__ == "Abort":  # how typer passes on an interrupt at a prompt
        return EXIT_INTERRUPTED
    if os.environ.get(DEBUG_VARIABLE):
        raise error
    return _fail(
        f"this should not happen: {_one_line(error)}. Please report it, with what {DEBUG_VARIABLE}=1 adds", EXIT_FAILURE
    )


def _leave_closed_pipe() -> int:
    """The reader went away (`goodput report | head`): nothing is wrong, and nothing more can be said."""
    # The interpreter flushes stdout once more at its exit; without a place to go it would complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_FAILURE


def _fail(message: str, status: int) -> int:
    print(f"goodput: {message}", file=sys.stderr)
    return status


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
