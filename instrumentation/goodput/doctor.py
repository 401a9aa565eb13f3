"""`goodput doctor`: whether this machine and this environment can record, tried out for real.

Each check gives a line: what was found, and where something is wrong, what to do. Nothing but the standard library is
needed; torch, where it is installed, is tried in processes of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import NoReturn

from goodput import checks
from goodput.environment import Environment, read_environment

EXIT_FAILURE = 1
EXIT_USAGE = 2


class Verdict(StrEnum):
    """`warn`: it records, but less well; `fail`: it does not, or not what it should."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check's result. `do`: what to do about it, None where all is well."""

    check: str
    verdict: Verdict
    says: str
    do: str | None = None


def main(argv: Sequence[str]) -> int:
    """Run the checks and print them; gives the exit status, 1 when one of them failed."""
    options = _parser().parse_args(list(argv))
    findings = []
    for finding in examine(read_environment(), quick=options.quick):
        findings.append(finding)
        if not options.json:
            print(_line(finding), flush=True)
    if options.json:
        print(json.dumps({"schema": 1, "checks": [asdict(finding) for finding in findings]}, indent=2))
    return EXIT_FAILURE if any(finding.verdict is Verdict.FAIL for finding in findings) else 0


def examine(environment: Environment, *, quick: bool = False) -> Iterator[Finding]:
    """The findings, one after the other, as they are made. `quick`: leave out what starts torch."""
    spool = checks.spool_directory(environment)
    tests: list[tuple[str, Callable[[], checks.Result]]] = [
        ("settings", lambda: checks.settings(environment)),
        ("identity", lambda: checks.identity(environment)),
        ("spool", lambda: checks.spool(spool)),
        ("disk", lambda: checks.disk(spool)),
        ("memory", lambda: checks.memory(environment)),
        ("lock", lambda: checks.lock(spool)),
        ("events", lambda: checks.events(environment, spool)),
        ("kill", lambda: checks.kill(environment, spool)),
        ("clock", checks.clock),
        ("devices", lambda: checks.devices(environment)),
    ]
    if not quick:
        tests.append(("token", lambda: checks.token(environment, spool)))
    for name, test in tests:
        try:
            verdict, says, do = test()
        except OSError as error:
            verdict, says, do = "fail", f"cannot be tried: {error.strerror or error}", "see spool"
        except Exception as error:
            verdict, says, do = "fail", f"{type(error).__name__}: {error}", "please report this"
        yield Finding(check=name, verdict=Verdict(verdict), says=says, do=do)


def _line(finding: Finding) -> str:
    does = "" if finding.do is None else f"\n{'':16}do: {finding.do}"
    return f"{finding.verdict:5}{finding.check:11}{finding.says}{does}"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"goodput: {message}. See: goodput doctor --help", file=sys.stderr)
        sys.exit(EXIT_USAGE)


def _parser() -> argparse.ArgumentParser:
    made = _Parser(
        prog="goodput doctor",
        description="Try out whether this machine can record: settings, identity, spool, disk, memory, lock, events, "
        "a killed process, clock, devices, and the ranks' agreement on a token.",
        epilog="Example: goodput doctor, where the training runs: inside its container, with its environment",
        allow_abbrev=False,
    )
    made.add_argument("--json", action="store_true", help="print JSON instead of text")
    made.add_argument("--quick", action="store_true", help="leave out the token, which starts torch twice")
    return made
