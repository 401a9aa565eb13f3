"""Hold the wheel against what it must and must not contain.

usage: check_wheel.py WHEEL
"""

import sys
import zipfile
from pathlib import Path

ROOMS = {
    "goodput": "instrumentation",
    "goodput_collector": "collector",
    "goodput_analytics": "analytics",
    "goodput_dashboard": "dashboard",
}


def main() -> int:
    names = set(zipfile.ZipFile(sys.argv[1]).namelist())
    wrong = []
    for package, room in ROOMS.items():
        for source in Path(room, package).rglob("*"):
            wanted = source.suffix in (".py", ".sql") or source.name == "py.typed"
            if wanted and source.relative_to(room).as_posix() not in names:
                wrong.append(f"{source} is missing from the wheel")
        if f"{package}/py.typed" not in names:
            wrong.append(f"{package} has no py.typed")
    allowed = (*(f"{package}/" for package in ROOMS), "goodput_ledger-")
    wrong += [f"{name} does not belong in the wheel" for name in sorted(names) if not name.startswith(allowed)]
    if not any(name.endswith("licenses/LICENSE") for name in names):
        wrong.append("the wheel has no LICENSE")
    if not any(name.endswith(".sql") for name in names):
        wrong.append("the wheel has no .sql files")
    print("\n".join(wrong) or f"{Path(sys.argv[1]).name}: {len(names)} files, all in their place")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
