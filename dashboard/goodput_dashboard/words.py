"""What the words on the pages mean, for their help texts: the same words as in the accounting rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goodput_dashboard.figures import duration, percent

FIRST_VISIT = (
    "**Goodput** is the share of the GPU time that a training run holds in which it made steps that were kept. "
    "Every GPU-second is entered once, in one category, so what is not goodput has a name and a price. "
    "Choose a run to see how much was lost, to what, what happened, who it was, and what to change."
)

CATEGORIES = {
    "productive": "Steps whose result was kept, or is still at stake in a live attempt.",
    "startup": "On the way to the first step of an attempt: teardown, restart, launch, init, "
    "and the first step's excess.",
    "checkpoint": "The loop was blocked by a save.",
    "rework": "Steps computed and then thrown away, the unfinished step at an abort, "
    "and steps whose update was skipped.",
    "hang": "No progress, and nothing that explains it, until the abort or until progress came back.",
    "straggler": "A step waited for its slowest ranks.",
    "data_wait": "A step waited for input on a typical rank.",
    "evaluation": "Declared evaluation. It is not a loss.",
    "unattributed": "In no step, and in no span that has a category.",
    "idle": "GPUs held by no attempt: spare GPUs, and the time after the end.",
}

CAUSES = {
    "crash": "A process raised an exception, was killed, or ended without a word while others told of it.",
    "hang": "Nothing moved for longer than the limit before the end.",
    "lost": "The attempt ended and nobody said anything.",
    "preempted": "A process or the scheduler said so; maintenance and time limits too. Planned.",
    "rollback": "Training went on from an earlier step although nothing had died.",
}

STATES = {
    "running": "at work",
    "hung": "no progress, and nothing that explains it",
    "paused": "every rank says that it is between steps; perhaps a save that nobody declared",
    "finished": "its last attempt finished",
    "failed": "its last attempt aborted, and none follows",
    "lost": "no stop was reported, and it has been silent for ten minutes",
}

GOODPUT = "Productive GPU-seconds over the GPU-seconds held: 0 to 100 %."
HELD = "GPUs held times the time they were held: the denominator of goodput."
LOST = "All GPU time held but `productive` and `evaluation`."
AT_RISK = "Productive, but after the last durable checkpoint: a failure now would lose it."
QUEUE = "From submission to admission. A delay in seconds, never GPU time."
SAID_CAUSE = (
    "What people say of it, beside what was recorded: planned, hardware, software or user. It changes no figure, and "
    "can be undone with `goodput correct undo`."
)
DETECTION = "From the last progress to the abort."
LOST_STEPS = "Steps computed and then thrown away because of it."
PRICE = "GPU time of the hang before the abort, of the work done again, and of the restart after it."
MTBF = "Mean time between failures: time from first steps to ends of attempts, over unplanned incidents."
YOUNG = "Young's interval: the square root of twice the blocking time of a save times the time between failures."
DALY = "Daly's interval: Young's, with the terms that matter when saves are long beside the time between failures."
BUDGET = "The loss that the target allows, and how much of it is used up. Above 100 % it is overdrawn."
LATENESS = "How much later than the median rank a rank was done with its own work in a step, on average."
SLOWDOWN = "The median over a rank's steps of its lateness over the median rank's."
SUSPECTS = (
    "Ranks, devices and nodes that were the slowest far more often than chance has it, over sliding windows of steps. "
    "Restarts number ranks anew; a device or a node is followed through them. What persists was so in half of the "
    "windows or more, or still is."
)
STEP_CHANGE = "Where the level of the step time changed, by 1 % or more and for good. Saves and hangs are left out."
WHAT_IF = (
    "S: the length of steps over the ideal, in which no rank is later than the lower quartile. `steps would take` is S "
    "without the worst few, `with it alone` S if only that rank were late."
)

QUALITY = {
    "events": "Events taken. Everything else rests on them.",
    "duplicates": "The same event came again; it was dropped. Harmless.",
    "conflicts": "An event came again with another content; one of the two was kept.",
    "rejected": "Lines that could not be read, by reason. They are kept apart and counted nowhere.",
    "gaps": "Numbers missing in a source's own count: events that never arrived.",
    "dropped": "Events that a recorder could not keep, and said so.",
    "max_skew_s": "The most that two clocks disagreed. The figures are corrected for it.",
    "silent_ranks": "Ranks below the world size that never reported: their GPUs count, their steps are not seen.",
    "sources_without_start": "Writers that never said who they are. They are left out.",
    "missing_steps": "Steps between two reported ones that nobody told of.",
    "negative_durations": "Ends that lay before their starts; taken as zero.",
    "assumed_gpu_s": "GPU time that rests on an assumption: gaps between attempts taken as held, "
    "silence taken for death, work kept without any checkpoint reported.",
}
CHANGES = {
    "async_save": "an asynchronous save",
    "faster_restart": "a faster restart",
    "shorter_timeout": "the collective timeout advised below",
    "all": "all of these",
}
WHAT_IFS = "Each change at its own best interval, against the best interval without it."
TIMEOUT = (
    "The shortest collective timeout that no legal silence of this run forbids (steps, saves, evaluations), at a "
    "stated risk of a false abort. Every GPU of the job is held until it ends a hang."
)
SCALE = (
    "A synchronous step takes as long as its slowest rank. The noise seen in this run's ranks, drawn for more of them: "
    "what a step would take, in steps without noise."
)


def change(row: Mapping[str, Any]) -> str:
    """A change of the step time, a row of `view_step_changes`, in a sentence or two."""
    how = f"{percent(abs(row['change_ratio']))} {'longer' if row['change_ratio'] > 0 else 'shorter'}"
    until = "on steps take" if row["lasts"] else f"to {row['until_step']:,} steps took"
    said = f"From step {row['step']:,} {until} {how}: {duration(row['before_s'])} before, "
    said += f"{duration(row['after_s'])} since"
    if row["ranks"] != row["ranks_before"]:
        return f"{said}, with {row['ranks']:,} ranks instead of {row['ranks_before']:,}."
    who = " on ".join(f"{name} {row[name]}" for name in ("rank", "node") if row[name] is not None)
    slowest = f" From then on {who} is the slowest in {percent(row['slowest_ratio'])} of steps." if who else ""
    return f"{said}; {row['part']} changed most.{slowest}"
