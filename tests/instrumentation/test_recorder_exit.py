"""How a record ends with its process: hooks that others put in place of ours, and many recorders at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorder_reading import read_events
from recorder_scripts import run_script

from goodput.directory import is_tmpfs, user_directory_name
from goodput.spool import list_sources


def stops_of(spool: Path) -> list[tuple[str, str | None]]:
    return [(event["reason"], event.get("detail")) for event in read_events(spool) if event["kind"] == "stop"]


HOOK = """
        def mine(kind, error, trace):
            print("mine:", kind.__name__)
        rec = goodput.start(run="r")
        sys.excepthook = mine
"""


@pytest.mark.parametrize(
    ("last_line", "printed", "stop"),
    [
        ("raise LookupError", "mine: LookupError\n", ("exception", "LookupError")),
        ("raise KeyboardInterrupt", "mine: KeyboardInterrupt\n", ("signal", "SIGINT")),
        ("sys.excepthook = None; raise LookupError", "", ("exception", "LookupError")),
        ("rec.preempted(); raise LookupError", "mine: LookupError\n", ("preempted", None)),
        ("sys.exit(0)", "", ("exited", None)),
        ("pass", "", ("exited", None)),
    ],
)
def test_a_hook_put_in_place_of_ours_hides_no_exception(
    spool: Path, last_line: str, printed: str, stop: tuple[str, str | None]
) -> None:
    done = run_script(f"{HOOK}        {last_line}\n", spool)
    assert done.stdout == printed
    assert stops_of(spool) == [stop]


def test_a_hook_that_calls_ours_is_called_once(spool: Path) -> None:
    done = run_script(
        """
        rec = goodput.start(run="r")
        ours = sys.excepthook
        def mine(kind, error, trace):
            print("mine:", kind.__name__)
            ours(kind, error, trace)
        sys.excepthook = mine
        raise LookupError
        """,
        spool,
    )
    assert done.stdout == "mine: LookupError\n"
    assert done.stderr.count("Traceback") == 1
    assert stops_of(spool) == [("exception", "LookupError")]


def test_what_a_console_or_a_test_runner_caught_ends_nothing(spool: Path) -> None:
    done = run_script(
        """
        rec = goodput.start(run="r")
        def cell():
            raise LookupError
        try:
            cell()
        except LookupError as error:
            # As IPython and pytest do: the traceback begins where they called, below the outermost frame.
            sys.last_value, sys.last_traceback = error, error.__traceback__.tb_next
        """,
        spool,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert stops_of(spool) == [("exited", None)]


def test_a_prompt_goes_on_after_an_exception(spool: Path) -> None:
    done = run_script(
        """
        import subprocess
        lines = "import goodput\\nrec = goodput.start(run='r')\\n1 / 0\\n"
        subprocess.run([sys.executable, "-i"], input=lines, text=True, check=True, stderr=subprocess.DEVNULL)
        """,
        spool,
    )
    assert done.returncode == 0, done.stderr
    assert [reason for reason, _ in stops_of(spool)] == ["exited"]


def test_many_unfinished_recorders_all_come_to_their_end(spool: Path) -> None:
    """Started by threads at the same time, as many experiments in one process are."""
    memory = Path("/dev/shm") / user_directory_name()
    before = set(memory.iterdir()) if is_tmpfs("/dev/shm") and memory.exists() else set()
    done = run_script(
        """
        import threading
        sys.setswitchinterval(1e-6)
        ready = threading.Barrier(14)
        def begin(number):
            ready.wait()
            rec = goodput.start(run=f"run-{number}")
            with rec.step(1):
                time.sleep(0.06)
            sys.stdout.write(rec.source + "\\n")
        threads = [threading.Thread(target=begin, args=[number]) for number in range(14)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """,
        spool,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.split()) == 14
    assert stops_of(spool) == [("exited", None)] * 14
    assert list_sources(spool) == {}
    if is_tmpfs("/dev/shm"):
        assert not {path.name for path in set(memory.iterdir()) - before} & set(done.stdout.split())


def test_disks_that_stand_are_waited_for_once_and_keep_nobody(spool: Path) -> None:
    done = run_script(
        """
        import threading
        from goodput import hooks, worker

        class Standing:
            pressed = False
            def drain(self, *_, **__):
                threading.Event().wait()

        worker.CLOSE_LIMIT_S = 0.5
        recorders = [goodput.start(run=f"run-{number}") for number in range(14)]
        for rec in recorders[:6]:
            rec._worker._writer = Standing()
        begun = time.monotonic()
        hooks._at_exit()
        print(time.monotonic() - begun < 2, [rec._worker.closed for rec in recorders].count(True))
        """,
        spool,
    )
    assert done.stdout == "True 8\n", done.stderr
