"""Real SIGKILLs at random moments: what was handed over is on disk afterwards, once."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
from harmless_training import training
from recorder_reading import done_steps, of_rank, read_events

from goodput.directory import is_tmpfs
from goodput.spool import list_sources, recover_dead

WORK = ("pass", "time.sleep(0.001)", "sum(range(20_000))", "time.sleep(0.06)")
AGED_S = 0.1
"""Without tmpfs a kill costs at most what was handed over this shortly before."""


def kill_one(tmp_path: Path, dice: random.Random, number: int, memory: str | None) -> float:
    """Train, kill at a random moment, recover; gives how long what was lost had waited."""
    spool = tmp_path / f"spool-{number}"
    more = {} if memory is None else {"GOODPUT_MEMORY": memory}
    work, progress = dice.choice(WORK), dice.choice([0, 0, 1, 5])
    if memory == "off" and work == "pass":
        work = "time.sleep(0.001)"
    with training(spool, tmp_path / f"counter-{number}", work=work, progress=progress, **more) as it:
        time.sleep(dice.uniform(0, 0.35))
        if dice.random() < 0.2:
            # A moment at which nobody runs: a store is cut where it stands.
            it.process.send_signal(signal.SIGSTOP)
        last_s = time.time()
        it.process.kill()
        it.process.wait(10)
        steps, told = it.steps, it.told
    (dead,) = recover_dead(spool)
    assert not dead.lost_memory and list_sources(spool) == {}
    events = of_rank(read_events(spool))
    assert len({event["seq"] for event in events}) == len(events)
    lost = sum(event["count"] for event in events if event["kind"] == "dropped")
    done = done_steps(events)
    if memory == "off":
        assert done == list(range(1, len(done) + 1)) and lost == 0
        # The first that is missing had waited for longest.
        return last_s - it.handed_over_s(len(done) + 1) if len(done) < steps else 0.0
    kept = sum(event["kind"] == "progress" for event in events)
    if not lost:
        assert [event["seq"] for event in events] == list(range(len(events)))
        assert done == list(range(1, len(done) + 1))
        # The last step may have been handed over before it was counted.
        assert steps <= len(done) <= steps + 1
        assert told <= kept <= told + progress
    else:
        # Handed over faster than a disk takes it: what had no room is counted, an event of many steps as one.
        assert told <= kept + lost + dead.damaged
        assert max(event["seq"] for event in events) + 1 - len(events) <= lost + dead.damaged
    return 0.0


def kill_many(tmp_path: Path, kills: int, seed: int) -> None:
    if not is_tmpfs("/dev/shm"):
        pytest.skip("events outlive a SIGKILL on tmpfs only: needs /dev/shm")
    dice = random.Random(seed)
    for number in range(kills):
        try:
            kill_one(tmp_path, dice, number, None)
        except BaseException:
            print(f"kill {number} of seed {seed}")
            raise


def test_kills_at_random_moments_lose_nothing(tmp_path: Path) -> None:
    kill_many(tmp_path, 15, seed=7)


@pytest.mark.soak
def test_two_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    """Four minutes; a failure would show a step that was handed over and is not in the spool, or is there twice."""
    kill_many(tmp_path, 250, seed=random.SystemRandom().randrange(1 << 30))


def test_without_tmpfs_a_kill_costs_a_tenth_of_a_second(tmp_path: Path) -> None:
    dice = random.Random(3)
    lost_s = [kill_one(tmp_path, dice, number, "off") for number in range(6)]
    print(f"lost without tmpfs: {sorted(round(one * 1e3) for one in lost_s)} ms")
    # The most may show how busy the machine is.
    assert sorted(lost_s)[4] < AGED_S and max(lost_s) < 3 * AGED_S


@pytest.mark.soak
def test_a_hundred_kills_without_tmpfs(tmp_path: Path) -> None:
    """Two minutes; a failure would show events that stay in memory for longer than a tick."""
    dice = random.Random(4)
    lost_s = sorted(kill_one(tmp_path, dice, number, "off") for number in range(100))
    print(f"lost without tmpfs: median {lost_s[50] * 1e3:.0f} ms, most {lost_s[-1] * 1e3:.0f} ms")
    assert lost_s[95] < AGED_S and lost_s[-1] < 3 * AGED_S
