"""What advice adds to the `goodput` command: `advise` and `simulate`."""

from __future__ import annotations

import json as json_text
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goodput_collector.options import DEFAULT_DB, AsJson, Database, ReadTokenFile, Url

if TYPE_CHECKING:
    from goodput_analytics.simulate_job import Job

ADVICE = typer.Typer(rich_markup_mode=None)

DAY_S = 86_400.0
MINUTE_S = 60.0
HOUR_S = 3600.0
MOST_ROWS = 1_000
MOST_GPUS = 100_000_000
MOST_PRICE = 1e9
"""Figures beyond these are slips, and sums of them would be too long for a float."""


@ADVICE.command(
    epilog="Example: goodput advise llama-7b --db run.duckdb; or: goodput advise --checkpoint-s 120 --mtbf-s 11160"
)
def advise(
    context: typer.Context,
    run: Annotated[str | None, typer.Argument(help="The run whose record is read.", metavar="RUN")] = None,
    db: Database = DEFAULT_DB,
    url: Url = None,
    token_file: ReadTokenFile = None,
    fleet: Annotated[
        bool, typer.Option("--fleet", help="What the saves of all runs in the database do to one another.")
    ] = False,
    checkpoint_s: Annotated[float | None, typer.Option(help="Without RUN: a save blocks for so long.")] = None,
    mtbf_s: Annotated[float | None, typer.Option(help="Without RUN: mean time between failures.")] = None,
    restart_s: Annotated[float | None, typer.Option(help="Without RUN: a restart; 0.")] = None,
    hang_s: Annotated[
        float | None, typer.Option(help="Without RUN: from a failure until somebody acts, on average; 0.")
    ] = None,
    write_s: Annotated[
        float | None, typer.Option(help="Without RUN: a save goes on in the background for so long; 0.")
    ] = None,
    interval_s: Annotated[float | None, typer.Option(help="Without RUN: the interval now, to compare with.")] = None,
    gpus: Annotated[int | None, typer.Option(help="Without RUN: GPUs of the job, to tell waste for a day.")] = None,
    price: Annotated[float | None, typer.Option(help="What a GPU-hour costs, to tell waste in money.")] = None,
    risk: Annotated[
        float | None, typer.Option(help="False aborts that the collective timeout may cause in 30 days; 0.01.")
    ] = None,
    ranks: Annotated[
        str | None, typer.Option(help="Numbers of ranks, with commas, to tell what the run's noise costs there.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Advise how often to save and how long to wait: from a run's own record, or from figures given."""
    from goodput_collector.commands import plain_errors

    given = {
        "checkpoint_s": checkpoint_s, "mtbf_s": mtbf_s, "restart_s": restart_s, "hang_s": hang_s, "write_s": write_s,
        "interval_s": interval_s, "gpus": gpus,
    }  # fmt: skip
    stray = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None]
    if price is not None and not 0 <= price <= MOST_PRICE:
        raise typer.BadParameter(f"a price is a number from 0 to {MOST_PRICE:.0e}; it is {price}", param_hint="--price")
    if fleet or run is not None:
        if stray:
            raise typer.BadParameter(f"{stray[0]} is for advice without a run's record; leave it out")
        # An address in the environment is for the commands that can ask a collector.
        source = context.get_parameter_source("url")
        asked = url is not None and source is not None and source.name != "ENVIRONMENT"
        if run is None and (asked or token_file is not None):
            raise typer.BadParameter("--fleet reads a database file; leave out --url")
        if fleet and (run is not None or risk is not None or ranks is not None):
            raise typer.BadParameter("--fleet looks at all runs of a database; leave out RUN, --risk and --ranks")
        with plain_errors(db):
            if run is None:
                _advise_fleet(db, price, json)
            else:
                _advise_run(run, db, url, token_file, 0.01 if risk is None else risk, ranks, price, json)
        return
    if risk is not None or ranks is not None:
        raise typer.BadParameter("--risk and --ranks are for the record of a run; name one")
    if checkpoint_s is None or mtbf_s is None:
        raise typer.BadParameter("name a RUN, or --fleet, or give --checkpoint-s and --mtbf-s")
    with plain_errors(db):
        _advise_figures(
            checkpoint_s, mtbf_s, restart_s or 0.0, hang_s or 0.0, write_s or 0.0, interval_s, gpus, price, json
        )


@ADVICE.command(
    epilog="Example: goodput simulate --useful-h 200 --mtbf-h 3.1 --checkpoint-s 120 --restart-s 600 "
    "--interval-min 10,30,60,young"
)
def simulate(
    mtbf_h: Annotated[float | None, typer.Option(help="Hours between failures, on average.")] = None,
    checkpoint_s: Annotated[float | None, typer.Option(help="A save blocks the loop for so long.")] = None,
    restart_s: Annotated[float, typer.Option(help="A restart takes so long.")] = 0.0,
    useful_h: Annotated[float, typer.Option(help="Hours of useful work to be done.")] = 200.0,
    interval_min: Annotated[
        str, typer.Option(help="Minutes of work between saves, with commas; also young, daly, optimal.")
    ] = "young",
    runs: Annotated[int, typer.Option(help="Simulated runs for each interval.")] = 400,
    seed: Annotated[int, typer.Option(help="The same seed gives the same figures.")] = 1,
    weibull_shape: Annotated[
        float, typer.Option(help="Below 1 failures come in bursts, above 1 they keep a distance.")
    ] = 1.0,
    write_s: Annotated[float, typer.Option(help="A save goes on in the background for so long.")] = 0.0,
    hang_ratio: Annotated[float, typer.Option(help="The share of failures that are hangs, 0 to 1.")] = 0.0,
    timeout_s: Annotated[float, typer.Option(help="A hang ends after so long.")] = 600.0,
    nodes: Annotated[int | None, typer.Option(help="Go on without failed nodes, of so many.")] = None,
    min_nodes: Annotated[int, typer.Option(help="With --nodes: wait for repairs below so many.")] = 1,
    repair_s: Annotated[float, typer.Option(help="With --nodes: a node is away for so long.")] = 3600.0,
    failures: Annotated[
        Path | None, typer.Option(help="Seconds from the start at which failures come, one a line.", metavar="FILE")
    ] = None,
    ranks: Annotated[
        str | None, typer.Option(help="Slow ranks instead: what they cost at these numbers of ranks, with commas.")
    ] = None,
    slow_ratio: Annotated[
        str, typer.Option(help="With --ranks: the share of steps in which a rank is slow, with commas.")
    ] = "0.0005,0.002",
    slow_factor: Annotated[float, typer.Option(help="With --ranks: a slow step takes so many normal ones.")] = 2.0,
    steps: Annotated[int, typer.Option(help="With --ranks: simulated steps.")] = 20_000,
    json: AsJson = False,
) -> None:
    """Simulate a job that saves and fails, at several intervals between saves; or a job with slow ranks."""
    from goodput_collector.commands import plain_errors

    with plain_errors(failures or DEFAULT_DB):
        if ranks is not None:
            if mtbf_h is not None or checkpoint_s is not None or failures is not None:
                raise typer.BadParameter("--ranks asks for slow ranks alone; leave out saves and failures")
            _simulate_ranks(ranks, slow_ratio, slow_factor, steps, seed, json)
            return
        if checkpoint_s is None or (mtbf_h is None) == (failures is None):
            raise typer.BadParameter("give --checkpoint-s, and either --mtbf-h or --failures FILE; or --ranks")
        from goodput_analytics.simulate_job import Elastic, Job

        with _bad_figures():
            elastic = None
            if nodes is not None:
                elastic = Elastic(nodes=nodes, repair_s=repair_s, restart_s=restart_s, min_nodes=min_nodes)
            job = Job(
                useful_s=useful_h * HOUR_S,
                checkpoint_s=checkpoint_s,
                restart_s=restart_s,
                mtbf_s=None if mtbf_h is None else mtbf_h * HOUR_S,
                weibull_shape=weibull_shape,
                write_s=write_s,
                hang_ratio=hang_ratio,
                hang_timeout_s=timeout_s,
                elastic=elastic,
                failure_times_s=None if failures is None else _failure_times(failures),
            )
        _simulate_job(job, interval_min, runs, seed, json)


@contextmanager
def _bad_figures() -> Iterator[None]:
    """A figure that cannot be is bad usage."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _advise_figures(
    checkpoint_s: float,
    mtbf_s: float,
    restart_s: float,
    hang_s: float,
    write_s: float,
    interval_s: float | None,
    gpus: int | None,
    price: float | None,
    json: bool,
) -> None:
    from goodput_analytics.advice_cost import MOST_S, CostModel
    from goodput_analytics.advice_interval import advise_interval
    from goodput_collector import advice_view

    with _bad_figures():
        if gpus is not None and not 1 <= gpus <= MOST_GPUS:
            raise ValueError(f"gpus must be from 1 to {MOST_GPUS:,}; it is {str(gpus)[:40]}")
        if interval_s is not None and interval_s > MOST_S:
            raise ValueError(f"interval_s must be {MOST_S:.0e} or less; it is {interval_s}")
        model = CostModel(checkpoint_s=checkpoint_s, mtbf_s=mtbf_s, restart_s=restart_s, hang_s=hang_s, write_s=write_s)
        told = advise_interval(model, actual_s=interval_s, held_gpu_s=None if gpus is None else gpus * DAY_S)
        if told is None:
            raise ValueError("checkpoint_s must be above 0: where saves cost nothing, save all the time")
    if json:
        _print_json(advice_view.interval_json(told, price))
    else:
        typer.echo(advice_view.interval_words(told, price, "a day"))


def _advise_run(
    run: str,
    db: Path,
    url: str | None,
    token_file: Path | None,
    risk: float,
    ranks: str | None,
    price: float | None,
    json: bool,
) -> None:
    from goodput_analytics.advice_run import advise as advise_run
    from goodput_analytics.advice_run import checked_ranks, checked_risk
    from goodput_analytics.errors import UnknownRun
    from goodput_collector import advice_view
    from goodput_collector.commands import collector, fail, unknown_run_words
    from goodput_collector.database import open_database

    with _bad_figures():
        checked_risk(risk)
        at_ranks = checked_ranks([] if ranks is None else _numbers(ranks, int, "--ranks"))
    try:
        if url is not None:
            with collector(url, token_file) as client:
                told = client.advice(run, risk_ratio=risk, at_ranks=at_ranks)
        else:
            connection = open_database(db, read_only=True)
            try:
                told = advise_run(connection, run, risk_ratio=risk, at_ranks=at_ranks)
            finally:
                connection.close()
    except UnknownRun as error:
        fail(unknown_run_words(run, error.known, db if url is None else url))
    if json:
        _print_json(advice_view.run_json(told, price))
    else:
        typer.echo(advice_view.run_words(told, price))


def _advise_fleet(db: Path, price: float | None, json: bool) -> None:
    from goodput_analytics.advice_fleet import fleet
    from goodput_collector import advice_view
    from goodput_collector.database import open_database

    connection = open_database(db, read_only=True)
    try:
        told = fleet(connection)
    finally:
        connection.close()
    if json:
        _print_json(advice_view.fleet_json(told, price))
    else:
        typer.echo(advice_view.fleet_words(told, price))


def _simulate_job(job: Job, interval_min: str, runs: int, seed: int, json: bool) -> None:
    from goodput_analytics.simulate import simulate as simulate_job
    from goodput_collector import advice_view

    if seed < 0:
        raise typer.BadParameter(f"a seed is a whole number of 0 or more; it is {seed}", param_hint="--seed")
    with _bad_figures():
        outcomes = [simulate_job(job, interval_s, runs=runs, seed=seed) for interval_s in _intervals(interval_min, job)]
    if json:
        _print_json([advice_view.outcome_json(outcome) for outcome in outcomes])
    else:
        typer.echo(advice_view.outcome_words(outcomes))


def _simulate_ranks(ranks: str, slow_ratio: str, slow_factor: float, steps: int, seed: int, json: bool) -> None:
    from goodput_analytics.scale import any_slow_ratio, simulated_slowdown, slowdown
    from goodput_collector import advice_view

    if seed < 0:
        raise typer.BadParameter(f"a seed is a whole number of 0 or more; it is {seed}", param_hint="--seed")
    with _bad_figures():
        rows = [
            {
                "ranks": n,
                "slow_ratio": p,
                "any_slow_ratio": any_slow_ratio(n, p),
                "simulated_slowdown": simulated_slowdown(n, p, slow_factor, steps=steps, seed=seed),
                "formula_slowdown": slowdown(n, p, slow_factor),
            }
            for n in _numbers(ranks, int, "--ranks")
            for p in _numbers(slow_ratio, float, "--slow-ratio")
        ]
    if json:
        _print_json(rows)
    else:
        typer.echo(advice_view.ranks_words(rows))


def _intervals(text: str, job: Job) -> list[float]:
    """The intervals asked for, in seconds."""
    from goodput_analytics.advice import daly_s, optimal_s, young_s

    named = {"young": young_s, "daly": daly_s, "optimal": optimal_s}
    found = []
    for word in _words(text, "--interval-min"):
        if word in named:
            if job.mean_gap_s == float("inf") or job.checkpoint_s == 0:
                raise ValueError(f"{word} asks for saves that cost something, and failures; give minutes instead")
            found.append(named[word](job.checkpoint_s, job.mean_gap_s))
        else:
            minutes = _numbers(word, float, "--interval-min", "minutes, young, daly or optimal")[0]
            found.append(minutes * MINUTE_S)
    return found


def _failure_times(path: Path) -> tuple[float, ...]:
    """The moments in a file, one a line; blank lines and what follows a # are left out."""
    times = []
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text of numbers, one a line") from error
    for number, line in enumerate(text.splitlines(), start=1):
        word = line.partition("#")[0].strip()
        if not word:
            continue
        try:
            times.append(float(word))
        except ValueError as error:
            raise ValueError(f"line {number} of {path} is not a number of seconds: {word[:40]!r}") from error
    return tuple(times)


def _words(text: str, option: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise typer.BadParameter("give one value or more, with commas", param_hint=option)
    if len(words) > MOST_ROWS:
        raise typer.BadParameter(f"give no more than {MOST_ROWS:,} values", param_hint=option)
    return words


def _numbers(text: str, kind: Callable[[str], Any], option: str, wanted: str = "numbers with commas") -> list[Any]:
    found = []
    for word in _words(text, option):
        try:
            found.append(kind(word))
        except ValueError as error:
            raise typer.BadParameter(f"{word[:40]!r} is none of: {wanted}", param_hint=option) from error
    return found


def _print_json(value: Any) -> None:
    typer.echo(json_text.dumps(value, indent=2, allow_nan=False))
