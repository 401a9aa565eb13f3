"""Random lives of runs, as hypothesis strategies: planned ones whose truth is known, and wild ones."""

from __future__ import annotations

from hypothesis import strategies as st

from .events import Event
from .planned import Life, S, Shape
from .wild import make_wild
from .writing import to_lines

__all__ = ["planned_life", "to_lines", "wild_events"]


@st.composite
def wild_events(draw: st.DrawFn, *, disputed: bool = False) -> list[Event]:
    """Valid events of the run `wild`, of one to four ranks and attempts, in which much goes wrong.

    `disputed` lets in what the rules leave open; the ledger must balance there too, but two readings may differ.
    """
    return make_wild(draw(st.randoms(use_true_random=False)), disputed=disputed)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    ranks = draw(st.integers(1, 4))
    devices = draw(st.sampled_from([1, 1, 2]))
    ahead = {}
    if ranks > 1 and draw(st.booleans()):
        # One clock is wrong. Of two, the one that is behind is taken as right.
        ahead[draw(st.integers(0, ranks - 1))] = draw(st.integers(1 if ranks == 2 else -100 * S, 100 * S))
    return Shape(
        ranks=ranks,
        devices=devices,
        step_ns=draw(st.sampled_from([S, 400_000_003, 2 * S])),
        count=draw(st.sampled_from([1, 1, 5])),
        busy=draw(st.booleans()),
        warmup_ns=draw(st.sampled_from([0, 0, 3 * S, 7_777_777_777])),
        ahead_ns=ahead,
        granted=draw(st.sampled_from([None, None, ranks * devices, ranks * devices + 3])),
        resume_events=draw(st.booleans()),
    )


@st.composite
def planned_life(draw: st.DrawFn) -> Life:
    """A run that has been lived to its end (or to now): its `events` and its `truth`."""
    life = Life(shape=draw(shapes()))
    slow_rank = draw(st.integers(0, 3))
    short = st.integers(1, 9 * S)
    brief = st.integers(0, 5 * S)
    saved = [0]
    life.launch()
    for restarts in range(4):
        for thing in draw(st.lists(st.sampled_from(THINGS), max_size=6)):
            match thing:
                case "steps":
                    life.plain(draw(st.integers(1, 8)))
                case "save":
                    life.save(draw(short), ok=draw(st.sampled_from([True, True, False])))
                case "background_save":
                    life.background_save(draw(short), durable=draw(st.booleans()))
                case "evaluation":
                    life.evaluate(draw(st.integers(1, 40 * S)))
                case "data_wait":
                    life.data_wait(draw(st.integers(1, 40 * S)))
                case "gap":
                    life.gap(draw(st.integers(1, 40 * S)))
                case "tidy":
                    life.tidy(draw(st.integers(1, 40 * S)), draw(st.sampled_from([None, "productive", "data_wait"])))
                case "stall":
                    life.stall(draw(st.integers(1, 1000 * S)))
                case "slow":
                    life.slow_steps(slow_rank, draw(st.integers(1, 5 * S)), draw(st.integers(1, 10)))
                case "late":
                    life.late_steps(slow_rank, draw(st.integers(1, 5 * S)), draw(st.integers(1, 6)))
                case "rollback":
                    life.rollback(draw(st.integers(0, 30 * S)))
            saved = sorted({*(n for n in saved if n <= life.last_save), life.last_save})
        if restarts == 3 or draw(st.booleans()):
            break
        said_so = True
        match draw(st.sampled_from(["crash", "preempted", "hang", "die_in_save", "vanish"])):
            case "crash":
                life.crash(draw(short), reason=draw(st.sampled_from(["exception", "signal"])), teardown_ns=draw(brief))
            case "preempted":
                life.crash(draw(brief), reason="preempted", teardown_ns=draw(brief))
            case "hang":
                life.hang(draw(st.integers(1, 2000 * S)), teardown_ns=draw(st.integers(0, 30 * S)))
            case "die_in_save":
                life.die_in_save(draw(st.integers(1, 120 * S)))
            case "vanish":
                life.vanish(draw(short))
                said_so = False
        if said_so and draw(st.integers(0, 4)) == 0:
            life.give_up(draw(brief))
            return life
        # Only a `resume` can tell that an older checkpoint was taken than the newest.
        older = life.shape.resume_events and draw(st.integers(0, 3)) == 0
        life.launch(
            wait_ns=draw(st.sampled_from([0, S, 60 * S, 61 * S, 600 * S + 1])),
            same_job=not said_so or draw(st.booleans()),
            to_step=draw(st.sampled_from(saved)) if older else None,
        )
        saved = [n for n in saved if n <= life.last_save]
    if draw(st.integers(0, 3)) == 0:
        life.look(draw(st.integers(0, 9 * S)), hung=draw(st.booleans()))
    else:
        life.finish(draw(brief), draw(brief))
    return life


THINGS = [
    "steps",
    "save",
    "background_save",
    "evaluation",
    "data_wait",
    "gap",
    "tidy",
    "stall",
    "slow",
    "late",
    "rollback",
]
