"""Run where nothing but our wheel is installed: the recorder must work, the command must say what to add.

usage: check_bare.py GOODPUT_COMMAND
"""

import json
import os
import subprocess
import sys
from pathlib import Path


def main() -> int:
    before = set(sys.modules)  # a fresh environment may load something of its installer's at the start
    import goodput

    recorder = goodput.start(run="bare")
    with recorder.step(1):
        pass
    recorder.finish()
    files = sorted(Path(os.environ["GOODPUT_SPOOL"]).rglob("*.jsonl"))
    kinds = [json.loads(line)["kind"] for file in files for line in file.read_text().splitlines()]
    assert {"start", "step", "stop"} <= set(kinds), f"the spool holds {kinds}"

    ours = Path(goodput.__file__).parent
    outside = sorted(
        name
        for name, module in sys.modules.items()
        if name not in before
        and "site-packages" in (getattr(module, "__file__", None) or "")
        and not module.__file__.startswith(str(ours))
    )
    assert not outside, f"third-party packages were loaded: {outside}"

    said = subprocess.run([sys.argv[1]], capture_output=True, text=True, check=False)
    assert said.returncode == 2, f"exit status {said.returncode}, should be 2"
    assert said.stdout == "" and len(said.stderr.splitlines()) == 1, f"not one line: {said.stdout!r} {said.stderr!r}"
    assert "goodput-ledger[collector]" in said.stderr, said.stderr

    # What training images use works there too.
    run = subprocess.run([sys.argv[1], "run", "--", "sh", "-c", "exit 7"], capture_output=True, text=True, check=False)
    assert run.returncode == 7 and run.stderr.startswith("goodput: not seen: any training"), run
    doctor = subprocess.run([sys.argv[1], "doctor"], capture_output=True, text=True, check=False)
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    print(f"recorded {len(kinds)} events with the standard library alone; the command says: {said.stderr.strip()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
