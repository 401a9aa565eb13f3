"""Advice and simulation as a person reads them, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from goodput_analytics.advice_interval import cost
from goodput_collector.figures import GpuTime, counted, duration, name, percent

if TYPE_CHECKING:
    from goodput_analytics.advice_fleet import FleetAdvice
    from goodput_analytics.advice_interval import IntervalAdvice, WhatIf
    from goodput_analytics.advice_run import RunAdvice
    from goodput_analytics.scale import Noise
    from goodput_analytics.simulate import Outcome
    from goodput_analytics.timeouts import TimeoutAdvice

CHANGES = {
    "async_save": "an asynchronous save",
    "faster_restart": "a restart in half the time",
    "shorter_timeout": "the shorter collective timeout",
    "all": "all of these",
}
MOST_LISTED = 10


def interval_json(told: IntervalAdvice, price: float | None) -> dict[str, Any]:
    """The advice about the interval, as `goodput advise --json` prints it."""
    return {
        "young_s": told.young_s,
        "daly_s": told.daly_s,
        "optimal_s": told.optimal_s,
        "waste_ratio": told.at_optimal.waste_ratio,
        **asdict(told.at_optimal),
        "flat_low_s": told.flat_low_s,
        "flat_high_s": told.flat_high_s,
        "held_gpu_s": told.held_gpu_s,
        "waste_gpu_s": told.waste_gpu_s,
        "waste_cost": cost(told.waste_gpu_s, price),
        "actual": None
        if told.at_actual is None
        else {
            "interval_s": told.actual_s,
            "waste_ratio": told.at_actual.waste_ratio,
            **asdict(told.at_actual),
            "waste_gpu_s": told.actual_waste_gpu_s,
            "waste_cost": cost(told.actual_waste_gpu_s, price),
        },
        "what_ifs": [asdict(w) | {"gained_cost": cost(w.gained_gpu_s, price)} for w in told.what_ifs],
        "model": asdict(told.model),
    }


def run_json(told: RunAdvice, price: float | None) -> dict[str, Any]:
    """The advice for a run. What rests on a figure that is missing is null."""
    empty = dict.fromkeys(
        (
            "young_s", "daly_s", "optimal_s", "waste_ratio", "goodput_ratio", "checkpoint_ratio", "rework_ratio",
            "restart_ratio", "hang_ratio", "flat_low_s", "flat_high_s",
        )
    )  # fmt: skip
    none = {**empty, "held_gpu_s": told.held_gpu_s, "waste_gpu_s": None, "waste_cost": None, "actual": None}
    none |= {"what_ifs": [], "model": None}
    m, timeout = told.interruptions, told.timeout
    return {
        "schema": 1,
        "run": told.run,
        **(none if told.interval is None else interval_json(told.interval, price)),
        "optimal_low_s": told.interval_low_s,
        "optimal_high_s": told.interval_high_s,
        "gpus": told.gpus,
        "nodes": told.nodes,
        "running_s": told.running_s,
        "interval_s": told.interval_s,
        "saves": None if told.saves is None else asdict(told.saves) | {"checkpoint_s": told.saves.checkpoint_s},
        "mtbf": {
            "interruptions": m.count,
            "mtbf_s": m.mean_s,
            "low_s": m.low_s,
            "high_s": m.high_s,
            "confidence_ratio": m.confidence_ratio,
            "few": m.few,
            "node_mtbf_s": told.node_mtbf_s,
            "planned_stops": told.planned_stops,
            "rollbacks": told.rollbacks,
            "startup_failures": told.startup_failures,
        },
        "restart_s": told.restart_s,
        "restarts": told.restarts,
        "hang_s": told.hang_s,
        "hangs": told.hangs,
        "timeout": None
        if timeout is None
        else asdict(timeout)
        | {
            "cut_stalls": timeout.cut_stalls,
            "used_s": told.timeout_s,
            "used_observed": told.typical_hang_s is not None,
            "saved_per_hang_gpu_s": told.saved_per_hang_gpu_s,
            "saved_per_hang_cost": cost(told.saved_per_hang_gpu_s, price),
        },
        "noise": None if told.noise is None else _noise_json(told.noise),
    }


def _noise_json(noise: Noise) -> dict[str, Any]:
    formula = noise.formula_by_ranks
    return {
        **{key: value for key, value in asdict(noise).items() if not key.endswith("_by_ranks")},
        "at_ranks": [
            {"ranks": n, "slowdown": value, "formula_slowdown": None if formula is None else formula[n]}
            for n, value in noise.slowdown_by_ranks.items()
        ],
    }


def fleet_json(told: FleetAdvice, price: float | None) -> dict[str, Any]:
    """What the saves of all runs do to one another."""
    return {
        "schema": 1,
        **asdict(told),
        "saved_cost": cost(told.saved_gpu_s, price),
        "runs": [asdict(one) | {"lost_cost": cost(one.lost_gpu_s, price)} for one in told.runs],
    }


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """A row of `goodput simulate --json`; what did not occur is left out."""
    told: dict[str, Any] = {
        "interval_s": outcome.interval_s,
        "goodput_ratio": outcome.goodput_ratio,
        "checkpoint_ratio": outcome.checkpoint_ratio,
        "rework_ratio": outcome.rework_ratio,
        "restart_ratio": outcome.restart_ratio,
        "model_ratio": outcome.model_ratio,
        "stderr": outcome.stderr,
    }
    if outcome.hang_ratio > 0:
        told["hang_ratio"] = outcome.hang_ratio
    if outcome.degraded_ratio > 0:
        told["degraded_ratio"] = outcome.degraded_ratio
    if outcome.finished_ratio < 1:
        told["finished_ratio"] = outcome.finished_ratio
    return told


def interval_words(told: IntervalAdvice, price: float | None, over: str) -> str:
    """The advice about the interval in a few lines; `over`: what the GPU time held is of."""
    best = told.at_optimal
    lines = [
        f"Save after every {duration(told.optimal_s)} of work: goodput {percent(best.goodput_ratio)} at best.",
        f"Young says {duration(told.young_s)}, Daly {duration(told.daly_s)}. Anything from "
        f"{duration(told.flat_low_s)} to {duration(told.flat_high_s)} is within a point of the best.",
        f"What is lost: saves {percent(best.checkpoint_ratio)}, lost work {percent(best.rework_ratio)}, restarts "
        f"{percent(best.restart_ratio)}, hangs {percent(best.hang_ratio)}{_worth(told.waste_gpu_s, price, over)}.",
    ]
    if told.at_actual is not None:
        lines.append(
            f"Now {duration(told.actual_s)} of work lie between two saves: goodput "
            f"{percent(told.at_actual.goodput_ratio)}{_worth(told.actual_waste_gpu_s, price, over, 'lost')}."
        )
    if told.what_ifs:
        lines += ["", "What else would be worth, at its own best interval:"]
        lines += [_what_if_words(what_if, price, over) for what_if in told.what_ifs]
    return "\n".join(lines)


def _what_if_words(what_if: WhatIf, price: float | None, over: str) -> str:
    assumes = "" if what_if.change == "all" else f"{what_if.assumes}; "
    return (
        f"  {CHANGES[what_if.change]}: {100 * what_if.gained_ratio:+.1f} points"
        f"{_worth(what_if.gained_gpu_s, price, over)} ({assumes}save after every {duration(what_if.optimal_s)})"
    )


def _worth(gpu_s: float | None, price: float | None, over: str, word: str = "") -> str:
    if gpu_s is None:
        return ""
    lost = f" {word}" if word else ""
    when = f" in {over}" if over else ""
    return f"; {GpuTime.for_total(gpu_s).amount(gpu_s)}{lost}{when}{_money(gpu_s, price)}"


def run_words(told: RunAdvice, price: float | None) -> str:
    """The advice for a run."""
    parts = [f"Advice for {name(told.run)}", "", _figures_words(told), ""]
    if told.interval is not None:
        parts += [interval_words(told.interval, price, "what it held so far"), *_uncertain_words(told)]
    else:
        parts += [_no_interval_words(told)]
    parts += ["", _timeout_words(told.timeout, told, price)] if told.timeout is not None else []
    parts += ["", _noise_words(told.noise)]
    return "\n".join(parts)


def _figures_words(told: RunAdvice) -> str:
    m, saves = told.interruptions, told.saves
    if saves is None:
        saved = "No save became durable."
    else:
        trend = ""
        if saves.trending and saves.trend_ratio is not None:
            trend = f" The last ones take {saves.trend_ratio:.2f} times those before, and count."
        saved = (
            f"{counted(saves.count, 'save')}: each blocks {duration(saves.mean_s)} on average, {duration(saves.p50_s)} "
            f"at the median, {duration(saves.p90_s)} at the 90th percentile, {duration(saves.max_s)} at most.{trend}"
        )
    between = f"one in {duration(m.mean_s)}" if m.mean_s is not None else "the time between them is unknown"
    if m.low_s is not None:
        upper = f" to {duration(m.high_s)}" if m.high_s is not None else " or more"
        between += f" ({100 * m.confidence_ratio:.0f} % sure: {duration(m.low_s)}{upper})"
    node = "" if told.node_mtbf_s is None else f"; one in {duration(told.node_mtbf_s)} per node"
    apart = (
        f"Apart: {counted(told.planned_stops, 'planned stop')}, {counted(told.rollbacks, 'rollback')}, "
        f"{counted(told.startup_failures, 'failure')} before a first step."
    )
    restart = "No restart was seen." if told.restart_s is None else f"A restart takes {duration(told.restart_s)}."
    return "\n".join(
        [
            saved,
            f"{counted(m.count, 'interruption')} in {duration(told.running_s)} of running: {between}{node}. {apart}",
            f"{restart} {counted(told.hangs, 'hang')}: {duration(told.hang_s)} per interruption.",
        ]
    )


def _uncertain_words(told: RunAdvice) -> list[str]:
    low_s, high_s = told.interval_low_s, told.interval_high_s
    if low_s is None or high_s is None:
        return []
    few = (
        f"With {counted(told.interruptions.count, 'interruption')} this is uncertain: t"
        if told.interruptions.few
        else "T"
    )
    said = [f"{few}he best interval lies between {duration(low_s)} and {duration(high_s)}."]
    if told.restart_s is None:
        said.append("No restart was seen, so its cost is left out.")
    return said


def _no_interval_words(told: RunAdvice) -> str:
    if told.saves is None:
        return "No interval can be advised without a durable save: wrap the save in rec.checkpoint(step)."
    if told.interval_low_s is not None:
        return (
            f"No interruption was seen, so no best interval is known. Nothing speaks for saving more often than every "
            f"{duration(told.interval_low_s)} of work."
        )
    return "No interval can be advised: the saves block for no time, or the run was not running yet."


def _timeout_words(timeout: TimeoutAdvice | None, told: RunAdvice, price: float | None) -> str:
    assert timeout is not None
    most = timeout.kinds[0]
    used = "hangs now last" if told.typical_hang_s is not None else "PyTorch's default is"
    risk = (
        f"{100 * timeout.risk_ratio:g} % risk of a false abort in 30 days of running"
        if timeout.risk_ratio is not None
        else "the risk is not known: silences of a kind are too few, or the longest too far from the others"
    )
    themselves = "itself" if timeout.cut_stalls == 1 else "themselves"
    stalls = (
        f" {counted(timeout.cut_stalls, 'stall')} that ended by {themselves} would have been cut."
        if timeout.cut_stalls
        else ""
    )
    head = f"Collective timeout: {duration(timeout.timeout_s)} ({risk})."
    why = f" The longest {most.kind} took {duration(most.longest_s)}, of {most.count:,}."
    now = f"{used[0].upper()}{used[1:]} {duration(told.timeout_s)}"
    if timeout.timeout_s >= told.timeout_s:
        return f"{head}{why} {now}: nothing speaks for a shorter one.{stalls}"
    saved = _worth(told.saved_per_hang_gpu_s, price, "").removeprefix("; ")
    return f"{head}{why} {now}: it would save {saved} per hang.{stalls}"


def _noise_words(noise: Noise | None) -> str:
    if noise is None:
        return (
            "What noise would cost at more ranks is not known: ranks do not tell their own work, or too few steps do."
        )
    own = noise.slowdown_by_ranks[noise.ranks]
    others = ", ".join(f"{n:,} ranks {value:.3f}" for n, value in noise.slowdown_by_ranks.items() if n != noise.ranks)
    slow = "" if noise.slow_factor is None else f", {noise.slow_factor:.2f} times the length"
    return (
        f"A rank is slow in {percent(noise.slow_ratio)} of its steps{slow}. A step takes {noise.observed_slowdown:.3f} "
        f"quiet ones on {counted(noise.ranks, 'rank')} ({own:.3f} if each is slow by itself); the same noise on "
        f"{others}."
    )


def fleet_words(told: FleetAdvice, price: float | None) -> str:
    """What the saves of all runs do to one another."""
    lines = [f"{counted(told.saves, 'blocking save')} of {counted(len(told.runs), 'run')}."]
    if told.async_saves:
        lines.append(
            f"{counted(told.async_saves, 'asynchronous save')} left out: they hold nobody up while they write."
        )
    if told.crowds:
        lines += ["", f"{'in flight':>9}{'saves':>8}{'blocked':>14}{'times alone':>13}"]
        lines += [f"{c.in_flight:>9}{c.saves:>8}{duration(c.mean_s):>14}{c.slowdown:>13.2f}" for c in told.crowds]
        lines.append("")
    if told.contention is None or told.saved_gpu_s is None:
        lines.append("Whether saves slow one another is not known: too few, or none met another.")
    else:
        lines.append(
            f"Each further save in flight adds {percent(told.contention)} of its time alone. Staggered, saves would "
            f"have cost {GpuTime.for_total(told.blocked_gpu_s).amount(told.saved_gpu_s)} less of "
            f"{GpuTime.for_total(told.blocked_gpu_s).amount(told.blocked_gpu_s)}{_money(told.saved_gpu_s, price)}."
        )
        if told.busy_ratio is not None and told.busy_ratio >= 1:
            lines.append("They cannot all be staggered: one after another they take longer than the time there is.")
        lines += [
            f"  {name(one.run)}: {duration(one.mean_s)} now, {duration(one.alone_s)} alone, over "
            f"{counted(one.saves, 'save')}"
            for one in told.runs[:MOST_LISTED]
        ]
        if len(told.runs) > MOST_LISTED:
            lines.append(f"  and {counted(len(told.runs) - MOST_LISTED, 'run')} that lose less (--json has them)")
    if told.left_out:
        lines.append(
            f"Left out, since their ledgers cannot be made: {', '.join(map(name, told.left_out[:MOST_LISTED]))}."
        )
    return "\n".join(lines)


def _money(gpu_s: float | None, price: float | None) -> str:
    money = cost(gpu_s, price)
    return "" if money is None else f", worth {money:,.2f}"


def outcome_words(outcomes: Sequence[Outcome]) -> str:
    """The simulated intervals as a table."""
    hangs = any(o.hang_ratio > 0 for o in outcomes)
    degraded = any(o.degraded_ratio > 0 for o in outcomes)
    heads = ["interval", "goodput", "+-", "saves", "lost work", "restarts"]
    heads += ["hangs"] * hangs + ["nodes away"] * degraded + ["model"]
    lines = ["".join(f"{head:>12}" for head in heads)]
    for o in outcomes:
        cells = [duration(o.interval_s), f"{o.goodput_ratio:.3f}", "-" if o.stderr is None else f"{o.stderr:.4f}"]
        cells += [f"{value:.3f}" for value in (o.checkpoint_ratio, o.rework_ratio, o.restart_ratio)]
        cells += [f"{o.hang_ratio:.3f}"] * hangs + [f"{o.degraded_ratio:.3f}"] * degraded + [f"{o.model_ratio:.3f}"]
        lines.append("".join(f"{cell:>12}" for cell in cells))
    lines.append(
        "Shares of the time held, but for the interval; +-: the standard error of goodput; model: what the first-order "
        "formula says of it."
    )
    cut = [o for o in outcomes if o.finished_ratio < 1]
    if cut:
        lines.append(
            f"At {duration(cut[0].interval_s)} runs were cut short: they fail too often to come to an end soon."
        )
    return "\n".join(lines)


def ranks_words(rows: Sequence[dict[str, Any]]) -> str:
    """What slow ranks cost, as a table."""
    lines = [f"{'ranks':>10}{'slow':>12}{'any slow':>12}{'simulated':>12}{'formula':>12}"]
    lines += [
        f"{row['ranks']:>10,}{row['slow_ratio']:>12g}{row['any_slow_ratio']:>12.3f}"
        f"{row['simulated_slowdown']:>12.3f}{row['formula_slowdown']:>12.3f}"
        for row in rows
    ]
    lines.append(
        "slow: the share of its steps in which a rank is slow; any slow: the share of steps in which any rank is; then "
        "how many normal steps one takes on average."
    )
    return "\n".join(lines)
