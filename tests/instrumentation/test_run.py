"""`goodput run` leaves a command as it is: exit status, signals, terminal, input, output, environment."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from run_commands import GOODPUT_RUN, plain_environment, run_alone, run_under

from goodput.endings import oom_kills
from goodput.launch import command_environment, default_run

PYTHON = sys.executable


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


@pytest.mark.parametrize("script", ["exit 0", "exit 3", "exit 255", "kill -TERM $$", "kill -KILL $$", "kill -SEGV $$"])
def test_the_exit_status_is_the_commands(spool: Path, script: str) -> None:
    alone, under = run_alone(sh(script), spool), run_under(sh(script), spool, "--quiet")
    assert (under.returncode, under.stdout, under.stderr) == (alone.returncode, alone.stdout, alone.stderr)


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["--", "no-such-command"], 127, "goodput: cannot run no-such-command: no such command\n"),
        (["--", "/"], 126, "goodput: cannot run /: Permission denied\n"),
        ([], 2, "goodput: run needs a command: goodput run -- torchrun train.py. See: goodput run --help\n"),
        (["--ran", "x"], 2, "goodput: unrecognized arguments: --ran. See: goodput run --help\n"),
        (["--run", " ", "true"], 2, "goodput: --run needs a name. See: goodput run --help\n"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_line(spool: Path, arguments: list[str], status: int, says: str) -> None:
    done = subprocess.run([*GOODPUT_RUN, *arguments], env=plain_environment(spool), capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", says)


def test_input_and_output_pass_byte_for_byte(spool: Path) -> None:
    data = bytes(range(256)) * 8192
    copy = [PYTHON, "-c", "import os\nwhile d := os.read(0, 65536):\n os.write(1, d)\n os.write(2, d[::-1])"]
    alone, under = (run(copy, spool, input=data) for run in (run_alone, run_under))
    assert under.stdout == alone.stdout == data
    assert under.stderr.startswith(alone.stderr) and len(alone.stderr) == len(data)
    assert under.stderr[len(data) :].startswith(b"goodput: not seen: any training")
    quiet = run_under(copy, spool, "--quiet", input=data)
    assert (quiet.stdout, quiet.stderr) == (alone.stdout, alone.stderr)


def test_the_order_of_output_and_errors_in_one_place_is_kept(spool: Path, tmp_path: Path) -> None:
    script = [PYTHON, "-c", "import os\nfor n in range(20000): os.write(1 + n % 2, b'%d\\n' % n)"]
    expected = b"".join(b"%d\n" % n for n in range(20000))
    assert run_under(script, spool, "--quiet", stderr=subprocess.STDOUT).stdout == expected
    with (tmp_path / "log").open("wb") as log:
        run_under(script, spool, "--quiet", stdout=log, stderr=log)
    assert (tmp_path / "log").read_bytes() == expected


def test_what_the_command_leaves_running_can_still_write(spool: Path) -> None:
    script = "(sleep 1.6; echo late >&2; sleep 0.2; echo later >&2) > /dev/null & echo now >&2"
    process = subprocess.Popen(
        [*GOODPUT_RUN, "--quiet", "--", *sh(script)], env=plain_environment(spool), stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    process.wait(timeout=20)
    assert process.stderr.read() == b"now\nlate\nlater\n"


def test_open_files_and_ignored_signals_are_inherited(spool: Path) -> None:
    read, write = os.pipe()
    script = f"import os, signal\nos.write({write}, b'here')\nprint(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
    done = run_under(
        [PYTHON, "-c", script],
        spool,
        "--quiet",
        pass_fds=[write],
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    os.close(write)
    assert (os.read(read, 10), done.stdout) == (b"here", b"True\n")
    os.close(read)


def test_signals_sent_to_us_reach_the_command_once(spool: Path) -> None:
    script = """
import signal, sys, time
got = []
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda n, _: got.append(signal.Signals(n).name))
print("ready", flush=True)
while len(got) < 4:
    time.sleep(0.01)
time.sleep(0.3)
print(*sorted(got))
sys.exit(7)
"""
    process = subprocess.Popen(
        [*GOODPUT_RUN, "--quiet", "--", PYTHON, "-c", script], env=plain_environment(spool), stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP):
        process.send_signal(number)
    assert process.communicate(timeout=20)[0] == b"SIGHUP SIGINT SIGTERM SIGUSR1\n"
    assert process.returncode == 7


def test_who_kills_us_kills_the_command(spool: Path) -> None:
    process = subprocess.Popen(
        [*GOODPUT_RUN, "--", *sh("echo $$; exec sleep 60")], env=plain_environment(spool), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    process.wait()
    # The pipe closes with the last one that holds it.
    assert process.stdout.read() == b""
    process.stdout.close()
    deadline_s = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and "State:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def read_terminal(fd: int, until: bytes, limit_s: float = 20) -> bytes:
    said, deadline_s = b"", time.monotonic() + limit_s
    while until not in said and time.monotonic() < deadline_s:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                said += os.read(fd, 65536)
            except OSError:
                break
    return said


def test_a_terminal_stays_one_and_its_interrupt_comes_once(spool: Path) -> None:
    script = """
import os, signal, sys, time
got = []
signal.signal(signal.SIGINT, lambda *_: got.append(1))
print("tty", [os.isatty(fd) for fd in (0, 1, 2)], os.tcgetpgrp(0) == os.getpgrp(), flush=True)
while not got:
    time.sleep(0.01)
time.sleep(0.3)
print("interrupted", len(got), flush=True)
sys.exit(5)
"""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(PYTHON, [*GOODPUT_RUN, "--quiet", "--", PYTHON, "-c", script], plain_environment(spool))
    assert b"tty [True, True, True] True" in read_terminal(terminal, b"True\r\n")
    os.write(terminal, b"\x03")
    assert b"interrupted 1\r\n" in read_terminal(terminal, b"interrupted 1\r\n")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    os.close(terminal)


def test_python_below_looks_as_it_would_alone(spool: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.from_users_own = __file__\n")
    script = (
        "import sys, json; print(json.dumps([sys.path, sorted(sys.modules), len(sys.meta_path),"
        " sys.from_users_own, sys.modules['sitecustomize'].__file__]))"
    )
    for path in (f"{tmp_path}{os.pathsep}/nowhere", str(tmp_path)):
        how = {"environment": {"PYTHONPATH": path}}
        alone, under = (run([PYTHON, "-c", script], spool, **how) for run in (run_alone, run_under))
        expected, found = json.loads(alone.stdout), json.loads(under.stdout)
        # One finder waits for torch.
        assert found[2] == expected[2] + 1
        assert [found[0], found[1], *found[3:]] == [expected[0], expected[1], *expected[3:]]


@pytest.mark.parametrize(
    "content", [None, "raise RuntimeError('mine')", "import no_such_module", "import sys; sys.exit(4)"]
)
def test_a_users_sitecustomize_fails_as_it_would_alone(spool: Path, tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "sitecustomize.py").write_text(content)
    script = [PYTHON, "-c", "import sys; print('sitecustomize' in sys.modules)"]
    alone, under = (run(script, spool, environment={"PYTHONPATH": str(tmp_path)}) for run in (run_alone, run_under))
    assert (under.returncode, under.stdout) == (alone.returncode, alone.stdout)
    assert under.stderr.startswith(alone.stderr) and (content is None) == (alone.stderr == b"")
    assert under.stderr[len(alone.stderr) :].startswith(b"goodput: not seen: any training")


def test_an_import_of_torch_that_fails_looks_as_it_would_alone(spool: Path, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    for content in ("raise ValueError('this torch is broken')", "import no_such_module", "def f(:"):
        (tmp_path / "torch" / "__init__.py").write_text(content)
        script = [PYTHON, "-c", "import torch"]
        how = {"environment": {"PYTHONPATH": str(tmp_path)}}
        alone, under = run_alone(script, spool, **how), run_under(script, spool, "--quiet", **how)
        assert (under.returncode, under.stderr) == (alone.returncode, alone.stderr) and under.returncode == 1
    shutil.rmtree(tmp_path / "torch")
    missing = [PYTHON, "-S", "-c", "import torch"]
    assert run_under(missing, spool, "--quiet").stderr == run_alone(missing, spool).stderr


def test_switched_off_it_is_the_command(spool: Path) -> None:
    script = sh("env | grep -c GOODPUT_LAUNCH; echo $PPID")
    done = run_under(script, spool, environment={"GOODPUT_DISABLED": "1"})
    assert done.stdout.decode().split() == ["0", str(os.getpid())]
    assert done.stderr == b"" and not spool.exists()


def test_without_any_place_the_command_runs_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_under(sh("echo fine; exit 3"), tmp_path / "file" / "spool", environment={"GOODPUT_MEMORY": "off"})
    assert (done.returncode, done.stdout) == (3, b"fine\n")
    assert done.stderr.startswith(b"goodput: nothing can be recorded, the command runs as it is: ")
    assert done.stderr.count(b"\n") == 1


def test_nothing_is_left_behind_and_what_a_killed_launch_left_is_taken_away(spool: Path) -> None:
    where = {"GOODPUT_MEMORY": "off"}
    command = [*GOODPUT_RUN, "--quiet", "--", *sh("echo up; exec sleep 60")]
    killed = subprocess.Popen(command, env=plain_environment(spool, **where), stdout=subprocess.PIPE)
    living = subprocess.Popen(command, env=plain_environment(spool, **where), stdout=subprocess.PIPE)
    for process in (killed, living):
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        process.stdout.close()
    killed.kill()
    killed.wait()
    left = list(spool.glob("launch-*"))
    assert len(left) == 2
    run_under(sh("true"), spool, environment=where)
    assert len(list(spool.glob("launch-*"))) == 2, "it may have been begun just now"
    for folder in left:
        os.utime(folder, (1, folder.stat().st_mtime - 3600))
    run_under(sh("true"), spool, environment=where)
    assert len(list(spool.glob("launch-*"))) == 1, "the one that lives"
    living.terminate()
    living.wait()
    assert list(spool.glob("launch-*")) == []


def test_a_run_is_named_by_its_script_and_arguments() -> None:
    name = default_run(["torchrun", "--node-rank", "0", "train.py", "--lr", "1"], "/home/me")
    assert name.startswith("train-") and len(name) == len("train-") + 6
    assert default_run(["torchrun", "--node-rank", "1", "train.py", "--lr", "1"], "/home/me") == name
    others = [["train.py", "--lr", "2"], ["other/train.py", "--lr", "1"], ["-m", "train", "--lr", "1"]]
    assert len({default_run(["python", *other], "/home/me") for other in others} | {name}) == 4
    assert default_run(["torchrun", "--node-rank", "0", "train.py", "--lr", "1"], "/elsewhere") != name
    module = ["python", "-m", "torch.distributed.run", "--nnodes", "2", "-m", "mine.train"]
    assert default_run(module, "/").startswith("train-")
    assert default_run(["bash", "job.sh"], "/").startswith("job-")


def test_the_users_path_comes_right_after_ours() -> None:
    found = command_environment(
        {"PYTHONPATH": "/mine", "_GOODPUT_RANK": "9"}, run="r", spool=Path("/s"), folder=Path("/f")
    )
    first, second = found["PYTHONPATH"].split(os.pathsep)
    assert Path(first, "sitecustomize.py").is_file() and second == "/mine"
    assert (found["GOODPUT_RUN"], found["GOODPUT_SPOOL"], found["_GOODPUT_LAUNCH"]) == ("r", "/s", "/f")
    assert "_GOODPUT_RANK" not in found


@pytest.mark.parametrize(
    ("groups", "place", "content", "expected"),
    [
        ("0::/job\n", "job/memory.events", "low 0\noom 3\noom_kill 2\n", 2),
        ("0::/job\n", "memory.events", "oom_kill 4\n", 4),
        ("4:memory:/job\n0::/\n", "memory/job/memory.oom_control", "under_oom 0\noom_kill 5\n", 5),
        ("1:cpu:/\n", "memory.events", "oom_kill 4\n", None),
        ("0::/job\n", "elsewhere", "", None),
    ],
)
def test_kills_for_want_of_memory_are_counted_by_the_control_group(
    tmp_path: Path, groups: str, place: str, content: str, expected: int | None
) -> None:
    (tmp_path / "groups").write_text(groups)
    (tmp_path / "root" / place).parent.mkdir(parents=True)
    (tmp_path / "root" / place).write_text(content)
    assert oom_kills(tmp_path / "root", tmp_path / "groups") == expected
