"""What a person should know about a run: what was lost, the evidence, and what to do next. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from goodput_analytics.model import Category, Checkpoints, Finding, Incident, Quality, Straggler
from goodput_analytics.settings import NS_PER_S
from goodput_analytics.suspects import Missing

if TYPE_CHECKING:  # it needs numpy, which a report without findings of this kind does not
    from goodput_analytics.step_changes import StepChange

NOTEWORTHY_RATIO = 0.01
"""A loss below this share of the allocation is not worth a sentence, unless something is wrong with the data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What findings are drawn from: the report's own figures, and the relations that only findings use."""

    allocated_gpu_s: float
    gpu_s: Mapping[str, float]
    phases_gpu_s: Mapping[str, Mapping[str, float]]
    incidents: Sequence[Incident]
    checkpoints: Checkpoints
    stragglers: Sequence[Straggler]
    quality: Quality
    launches: int
    slowdown: Mapping[str, Any] | None
    long_spans: Sequence[Mapping[str, Any]]
    stillness: Mapping[str, Any] | None = None
    waited_for: Mapping[str, Any] | None = None
    resume_losses: Sequence[Mapping[str, Any]] = ()
    step_change: StepChange | None = None
    slow_node: Mapping[str, Any] | None = None

    def phase(self, category: Category, phase: str) -> float:
        return self.phases_gpu_s.get(category, {}).get(phase, 0.0)

    @property
    def lost_gpu_s(self) -> float:
        return self.allocated_gpu_s - self.gpu_s[Category.PRODUCTIVE] - self.gpu_s[Category.EVALUATION]

    def share_of_loss(self, gpu_s: float) -> str:
        return f"{100 * gpu_s / self.lost_gpu_s:.0f} %" if self.lost_gpu_s > 0 else "0 %"


def hours(gpu_s: float) -> str:
    """GPU-hours for a person, or GPU-seconds where hours would be noise."""
    if gpu_s >= 3600:
        return f"{gpu_s / 3600:,.1f} GPU-hours"
    if 0 < gpu_s < 0.01:
        return "less than 0.01 GPU-seconds"
    return f"{gpu_s:,.0f} GPU-seconds" if gpu_s >= 10 else f"{gpu_s:.2f} GPU-seconds"


def span(seconds: float) -> str:
    """A duration for a person."""
    if seconds >= 7200:
        return f"{seconds / 3600:.1f} h"
    if seconds >= 120:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


def _step(seconds: float) -> str:
    """The length of a step, closely enough to see a change of a few per cent."""
    return f"{seconds:#.3g} s" if seconds < 100 else span(seconds)


def several(count: int, one: str) -> str:
    """A number of things, in the singular or the plural."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {one}s"


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """The findings, largest loss first; those without a figure last."""
    found = [
        *_rework(evidence),
        *_hang(evidence),
        *_startup(evidence),
        *_checkpoint(evidence),
        *_straggler(evidence),
        *_shares(evidence),
        *_common_slowdown(evidence),
        *_waited_for(evidence),
        *_slower_steps(evidence),
        *_slow_node(evidence),
        *_resume_discontinuity(evidence),
        *_data(evidence),
    ]
    floor = NOTEWORTHY_RATIO * evidence.allocated_gpu_s
    # What stands still now is worth a sentence, however short it is yet.
    now = {"waited_for"} if evidence.stillness is None else {"waited_for", "hang"}
    kept = [f for f in found if f.gpu_s is None or f.gpu_s >= floor or f.code in now]
    return tuple(sorted(kept, key=lambda f: -(f.gpu_s if f.gpu_s is not None else -1.0)))


def _rework(e: Evidence) -> Iterator[Finding]:
    lost = e.gpu_s[Category.REWORK] - e.phase(Category.REWORK, "skipped")
    if lost <= 0:
        return
    c = e.checkpoints
    steps = sum(i.lost_steps for i in e.incidents)
    what = f"{several(steps, 'step')} lost" if steps else "No whole step lost, only what was under way"
    says = f"{e.share_of_loss(lost)} of the loss is rework: {hours(lost)} of work were thrown away."
    if c.mean_interval_s is not None and c.daly_s is not None and c.daly_s < c.mean_interval_s:
        # Half an interval is lost per failure on average; the same failures at the advised one would have cost less.
        kept = lost * (1 - c.daly_s / c.mean_interval_s)
        evidence = f"Saves are {span(c.mean_interval_s)} apart; the advised interval is {span(c.daly_s)}."
        then = f"Save every {span(c.daly_s)}: it would have kept about {hours(kept)}."
    elif c.count == 0:
        evidence = f"{what}, and no completed save was reported."
        then = "Save checkpoints, and wrap the save in rec.checkpoint(step) so that it is seen."
    else:
        evidence = f"{what} in {several(len(e.incidents), 'interruption')}."
        then = "Save closer together, or save when the platform announces a stop (rec.preempted())."
        if c.mean_interval_s is not None and c.daly_s is not None:
            evidence += f" Saves are {span(c.mean_interval_s)} apart; the advised interval is {span(c.daly_s)}."
            then = "Look at what interrupts the run: saves closer together would cost more than they keep."
    yield Finding(code="rework", gpu_s=lost, says=says, evidence=evidence, next=then)


def _hang(e: Evidence) -> Iterator[Finding]:
    lost = e.gpu_s[Category.HANG]
    if lost <= 0:
        return
    hung = [i for i in e.incidents if i.hang_gpu_s > 0]
    now = e.stillness
    says = f"{e.share_of_loss(lost)} of the loss is hang: {hours(lost)} were held without progress."
    if now is not None:
        what = "in a step" if now["activity"] == "step" else f"in {now['activity']!r}"
        since = datetime.fromtimestamp(now["mark_ns"] / NS_PER_S, UTC).strftime("%Y-%m-%d %H:%M:%S")
        evidence = f"The run hangs now, {what}: its last progress was at {since} UTC, {span(now['still_s'])} ago."
        who = now["missing"]
        evidence += f" {_absent(who)}" if who.ranks else " Nothing tells which rank it began with."
        first = f"rank {who.ranks[0]}" if who.ranks else "each rank"
        then = f"Dump the stacks of {first} (py-spy dump --pid), and restart from the last checkpoint."
    elif hung:
        worst = max(hung, key=lambda i: i.hang_gpu_s)
        who = ", ".join(str(r) for r in worst.suspect_ranks[:8])
        blame = f"Suspected: rank {who}." if who else "Nothing tells which rank it began with."
        evidence = f"{several(len(hung), 'hang')}; the longest took {span(worst.detection_s)} to end. {blame}"
        then = "Shorten the collective timeout, and look at the suspect ranks' nodes first."
    else:
        evidence = "No attempt ended in it: progress came back by itself."
        then = "Look at storage, network and data loading at those times."
    yield Finding(code="hang", gpu_s=lost, says=says, evidence=evidence, next=then)


def _waited_for(e: Evidence) -> Iterator[Finding]:
    found = e.waited_for
    if found is None:
        return
    who = found["missing"]
    yield Finding(
        code="waited_for",
        gpu_s=found["gpu_s"],
        says=f"No step yet: the other ranks have waited for {_names(who)} for {span(found['waited_s'])}.",
        evidence=_absent(who),
        next=f"See what rank {who.ranks[0]} is doing (py-spy dump --pid), and look at its node.",
    )


def _names(who: Missing) -> str:
    ranks = ", ".join(map(str, who.ranks[:8])) + (", …" if len(who.ranks) > 8 else "")
    return f"rank {ranks}" if len(who.ranks) == 1 else f"ranks {ranks}"


def _absent(who: Missing) -> str:
    """Who is missing, and what it does instead."""
    one = len(who.ranks) == 1
    name = _names(who).capitalize()
    if not who.phases:
        return f"{name} {'has' if one else 'have'} fallen silent; the others have not."
    where = " or ".join(repr(phase) for phase in who.phases)
    return f"{name} {'is' if one else 'are'} missing where the others are: still in {where}."


def _startup(e: Evidence) -> Iterator[Finding]:
    lost = e.gpu_s[Category.STARTUP]
    if lost <= 0:
        return
    phases = sorted(e.phases_gpu_s.get(Category.STARTUP, {}).items(), key=lambda item: -item[1])
    most = ", ".join(f"{name} {hours(gpu_s)}" for name, gpu_s in phases[:3])
    restarts = sum(i.restart_gpu_s for i in e.incidents)
    after = f", of it {hours(restarts)} after interruptions" if restarts > 0 else ""
    then = "Shorten the largest phase: warm nodes, cached images and compiled code, a faster checkpoint load."
    if phases and phases[0][0] == "launch":
        # What a newcomer meets first: the imports before the recorder begins.
        then = (
            "Launch is what comes before goodput.start: call it before the heavy imports, and see what is left; "
            "warm nodes and cached images shorten it."
        )
    yield Finding(
        code="startup",
        gpu_s=lost,
        says=f"{e.share_of_loss(lost)} of the loss is startup: {hours(lost)}{after}.",
        evidence=f"Most of it: {most}.",
        next=then,
    )


def _checkpoint(e: Evidence) -> Iterator[Finding]:
    c = e.checkpoints
    lost = e.gpu_s[Category.CHECKPOINT]
    if c.failed:
        yield Finding(
            code="saves_failed",
            gpu_s=None,
            says=f"{several(c.failed, 'save')} failed or never became durable.",
            evidence=f"{c.count:,} completed.",
            next="Check storage; a save that nobody finished bounds no loss.",
        )
    if lost <= 0:
        return
    then = "Save asynchronously or sharded: a shorter block is worth more than a better interval."
    if c.mean_blocking_s is None:
        evidence = "No save was completed in it."
        then = "See where saves fail or stand still, and wrap each in rec.checkpoint(step), so that it is seen."
    elif c.count == 1:
        evidence = f"1 save blocks the loop for {span(c.mean_blocking_s)}."
    else:
        evidence = f"{c.count:,} saves block the loop for {span(c.mean_blocking_s)} on average."
    if c.daly_s is not None and c.mean_interval_s is not None and c.daly_s > 1.5 * c.mean_interval_s:
        evidence += f" They are {span(c.mean_interval_s)} apart; the advised interval is {span(c.daly_s)}."
        then = f"Save every {span(c.daly_s)}."
    yield Finding(
        code="checkpoint",
        gpu_s=lost,
        says=f"{e.share_of_loss(lost)} of the loss is blocked by saves: {hours(lost)}.",
        evidence=evidence,
        next=then,
    )


def _straggler(e: Evidence) -> Iterator[Finding]:
    lost = e.gpu_s[Category.STRAGGLER]
    if lost <= 0:
        return
    if e.stragglers:
        worst = e.stragglers[0]
        where = f" on {worst.node}" if worst.node else ""
        slow = f", {worst.slowdown_ratio:.2f} times the median rank" if worst.slowdown_ratio is not None else ""
        evidence = f"Rank {worst.rank}{where} was the latest in {worst.slowest_steps:,} steps{slow}."
        node = f"the node{where.removeprefix(' on') or f' of rank {worst.rank}'}"
        then = f"Test {node} alone; if it is slow there too, take it out, else look at what this rank does besides."
    else:
        evidence = "No rank is the latest more often than chance."
        then = "Look for noise that wanders: garbage collection, shared storage, other jobs on the nodes."
    yield Finding(
        code="straggler",
        gpu_s=lost,
        says=f"{e.share_of_loss(lost)} of the loss is waiting for the slowest rank: {hours(lost)}.",
        evidence=evidence,
        next=then,
    )


def _shares(e: Evidence) -> Iterator[Finding]:
    advice = {
        Category.DATA_WAIT: (
            "is waiting for input",
            "The median rank waits for the next batch.",
            "Add loader workers or prefetch; check the storage that the data comes from.",
        ),
        Category.UNATTRIBUTED: (
            "is in no step and in no declared span",
            "The loop does something between steps that nobody declared.",
            "Wrap it in rec.span(name), or in rec.checkpoint(step) if it is a save.",
        ),
        Category.IDLE: (
            "is GPUs that no rank drove",
            "The allocation is larger than the job, or outlived it.",
            "Ask for what the job drives, and release it when the job ends.",
        ),
    }
    for category, (what, evidence, then) in advice.items():
        lost = e.gpu_s[category]
        if lost > 0:
            says = f"{e.share_of_loss(lost)} of the loss {what}: {hours(lost)}."
            yield Finding(code=category.value, gpu_s=lost, says=says, evidence=evidence, next=then)
    skipped = e.phase(Category.REWORK, "skipped")
    if skipped > 0:
        yield Finding(
            code="steps_skipped",
            gpu_s=skipped,
            says=f"{e.share_of_loss(skipped)} of the loss is steps whose update was skipped: {hours(skipped)}.",
            evidence="The loss scaler found gradients that were not finite.",
            next="Lower the learning rate or the initial loss scale, or train in bfloat16.",
        )


def _common_slowdown(e: Evidence) -> Iterator[Finding]:
    s = e.slowdown
    if s is None or not s["typical_ns"] or not s["windows"]:
        return
    yield Finding(
        code="common_slowdown",
        gpu_s=float(s["gpu_ns"]) / NS_PER_S,
        says=f"In {s['windows']:,} of {s['all_windows']:,} steps more than half of the ranks were late.",
        evidence=f"More than half took over 1.2 times the run's usual {span(s['typical_ns'] / NS_PER_S)} of own work.",
        next="Look for what the ranks share: power caps, cooling, storage, network, longer batches.",
    )


def _slower_steps(e: Evidence) -> Iterator[Finding]:
    change = e.step_change
    if change is None:
        return
    longer = f"{100 * change.change_ratio:.{1 if change.change_ratio < 0.1 else 0}f} % longer"
    if change.lasts:
        says = f"From step {change.step:,} on steps take {longer}: {hours(change.extra_gpu_s)} so far."
    else:
        says = f"From step {change.step:,} to {change.until_step:,} steps took {longer}: {hours(change.extra_gpu_s)}."
    since = datetime.fromtimestamp(change.since_ns / NS_PER_S, UTC).strftime("%Y-%m-%d %H:%M:%S")
    first = ", with a new attempt" if change.new_attempt else ""
    evidence = (
        f"It began at {since} UTC{first}: {_step(change.before_s)} before, {_step(change.after_s)} after; "
        f"{change.part} grew most."
    )
    then = {
        "data_wait": "Look at the input since then: other files, a fuller or slower storage, fewer loader workers.",
        "unattributed": "Look at what the loop does between steps since then, and declare it.",
        "straggler": "See the ranks' lateness around that time: nobody is the slowest more often than chance has it.",
    }.get(change.part, "Look for what all ranks share since then: power caps, cooling, the network, longer batches.")
    if change.slowest_ratio is not None:
        rank = f"rank {change.rank}" if change.rank is not None else ""
        node = f"node {change.node}" if change.node is not None else ""
        who = f"{rank} on {node}" if rank and node else rank or node
        evidence += f" From then on {who} is the slowest in {100 * change.slowest_ratio:.0f} % of steps."
        then = (
            f"See what happened to {node or rank} at that time; test it alone, and take it out if it is slow there too."
        )
    yield Finding(code="slower_steps", gpu_s=change.extra_gpu_s, says=says, evidence=evidence, next=then)


def _slow_node(e: Evidence) -> Iterator[Finding]:
    node = e.slow_node
    if node is None:
        return
    waited = float(node["waited_gpu_s"])
    evidence = (
        f"It was in {100 * node['slowest_ratio']:.0f} % of the steps that waited; chance has "
        f"{100 * node['expected_ratio']:.0f} %."
    )
    if node["one_device"] is not None:
        evidence += f" Nearly always it was its device {node['one_device']}."
    yield Finding(
        code="slow_node",
        gpu_s=waited,
        says=f"Node {node['node']} was the slowest in {several(node['attempts'], 'attempt')}, "
        f"whichever ranks ran on it: {hours(waited)}.",
        evidence=evidence,
        next="Restarts do not cure it: exclude the node from the next one, and test it alone.",
    )


def _resume_discontinuity(e: Evidence) -> Iterator[Finding]:
    if not e.resume_losses:
        return
    first = e.resume_losses[0]
    if first["twice"]:
        evidence = (
            f"In attempt {first['attempt']}, {first['differing']:,} of {several(first['twice'], 'step')} computed twice"
            f" came out otherwise: step {first['step']:,} had loss {first['was']:.6g}, then {first['came']:.6g}."
        )
    else:
        evidence = (
            f"In attempt {first['attempt']} the loss jumped at step {first['step']:,}, the first after the resume, "
            f"from {first['was']:.6g} to {first['came']:.6g}."
        )
    yield Finding(
        code="resume_discontinuity",
        gpu_s=None,
        says=f"After {several(len(e.resume_losses), 'resume')} the training did not go on as it was.",
        evidence=evidence,
        next="Check that the optimizer, the learning rate schedule, random states and the data position are restored.",
    )


def _data(e: Evidence) -> Iterator[Finding]:
    q = e.quality
    if e.launches > 1:
        yield Finding(
            code="two_launches",
            gpu_s=None,
            says="Several launches progressed side by side under this name.",
            evidence=f"{e.launches} launches; the later ones are reported as runs of their own, NAME~2 and so on.",
            next="Give each launch a run name of its own.",
        )
    for row in e.long_spans:
        yield Finding(
            code="long_span",
            gpu_s=None,
            says=f"{several(row['spans'], 'span')} named {row['name']!r} took far longer than their like.",
            evidence=f"The longest took {span(row['longest_ns'] / NS_PER_S)}; "
            f"{span(row['typical_ns'] / NS_PER_S)} is usual.",
            next="A span that completes is never a hang: look at what it waited for.",
        )
    if q.max_skew_s > 1:
        yield Finding(
            code="clock_skew",
            gpu_s=None,
            says=f"Clocks disagree by up to {span(q.max_skew_s)}; the figures are corrected for it.",
            evidence="Ranks leave a synchronous step together; their ends tell how far each clock is off.",
            next="Check time synchronisation on the nodes.",
        )
    if q.silent_ranks:
        yield Finding(
            code="silent_ranks",
            gpu_s=None,
            says=f"{several(len(q.silent_ranks), 'rank')} never reported in an attempt that they belong to.",
            evidence=f"Among them rank {q.silent_ranks[0]}. Their GPUs are counted, their steps are not seen.",
            next="Start the recorder on every rank, and check that each node's events arrive.",
        )
    if q.assumed_gpu_s > 0:
        yield Finding(
            code="assumed",
            gpu_s=None,
            says=f"{hours(q.assumed_gpu_s)} rest on assumptions.",
            evidence="Gaps between attempts taken as held, silence taken for death, or work kept without a save.",
            next="Load the scheduler's allocation events too, and report checkpoints.",
        )
    broken = q.gaps + q.dropped + sum(q.rejected.values()) + q.conflicts + q.sources_without_start
    if broken:
        yield Finding(
            code="data_quality",
            gpu_s=None,
            says="Some events are missing or could not be read.",
            evidence=f"{q.gaps} missing, {q.dropped} dropped, {several(sum(q.rejected.values()), 'line')} rejected, "
            f"{several(q.conflicts, 'conflict')}, {several(q.sources_without_start, 'source')} without a start.",
            next="The table `rejected` of the database keeps the first bytes of each line, with its file and offset.",
        )
