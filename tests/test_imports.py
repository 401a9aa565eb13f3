"""The rooms import one way, and `import goodput` does nothing but define names."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = {
    "goodput": ROOT / "instrumentation" / "goodput",
    "goodput_collector": ROOT / "collector" / "goodput_collector",
    "goodput_analytics": ROOT / "analytics" / "goodput_analytics",
    "goodput_dashboard": ROOT / "dashboard" / "goodput_dashboard",
}
# Which other rooms a room may import: a whole package, or one module of it.
MAY_IMPORT = {
    "goodput": set(),
    "goodput_analytics": set(),
    "goodput_collector": {"goodput", "goodput_analytics"},
    "goodput_dashboard": {"goodput_analytics", "goodput_collector.client"},
}
# Third-party packages that a module of the recorder serves: the module's path, and the packages it may import.
SERVES: dict[str, set[str]] = {
    "cli.py": {"typer"},
    # The user's own, which it stands in for.
    "inject/sitecustomize.py": {"sitecustomize"},
    "torch.py": {"torch"},
    "_own_work.py": {"torch"},
    "_roles.py": {"torch"},
    "dcp.py": {"torch"},
    "lightning.py": {"lightning", "pytorch_lightning"},
    "huggingface.py": {"transformers"},
}
# (file, module) pairs that break the rules above. It is empty, and a new line needs a good reason beside it.
EXCEPTIONS: set[tuple[str, str]] = set()


def imports_of(file: Path, package: str, root: Path) -> set[str]:
    """Every module that a file imports, anywhere in it, by its full name."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = [package, *file.relative_to(root).parent.parts][: -node.level + 1 or None] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def within(module: str, allowed: set[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


def files(package: str) -> list[Path]:
    return sorted(ROOMS[package].rglob("*.py"))


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_import_one_way(package: str) -> None:
    assert files(package)
    wrong = {
        (file.relative_to(ROOT).as_posix(), module)
        for file in files(package)
        for module in imports_of(file, package, ROOMS[package])
        if within(module, set(ROOMS)) and not within(module, {package} | MAY_IMPORT[package])
    }
    assert wrong == {pair for pair in EXCEPTIONS if pair[0].split("/")[1] == package}


def test_the_recorder_imports_only_the_standard_library() -> None:
    allowed = {"goodput", *sys.stdlib_module_names}
    wrong = {
        (name, module)
        for file in files("goodput")
        for name in [file.relative_to(ROOMS["goodput"]).as_posix()]
        for module in imports_of(file, "goodput", ROOMS["goodput"])
        if not within(module, allowed | SERVES.get(name, set()))
    }
    assert wrong == set()


@pytest.mark.parametrize(
    ("line", "module"),
    [
        ("import goodput_collector.landing as l", "goodput_collector.landing"),
        ("from goodput_collector import landing", "goodput_collector.landing"),
        ("def f():\n    import torch.distributed", "torch.distributed"),
        ("from . import spool", "goodput.sub.spool"),
        ("from ..other import thing", "goodput.other.thing"),
        ("from .. import other", "goodput.other"),
    ],
)
def test_every_form_of_import_is_seen(line: str, module: str, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    file = tmp_path / "sub" / "module.py"
    file.write_text(line)
    assert imports_of(file, "goodput", tmp_path) == {module}


def test_import_goodput_does_nothing() -> None:
    # An audit hook sees every opened file, every socket and every process; the import system itself reads files.
    code = """
import json, sys, threading
seen = []
def watch(event, args):
    if event == "open" and not str(args[0]).endswith((".py", ".pyc")) and "__pycache__" not in str(args[0]):
        seen.append(f"open {args[0]}")
    elif event.split(".")[0] in ("socket", "subprocess", "shutil", "tempfile", "mmap", "fcntl", "signal") or event in (
        "os.fork", "os.mkdir", "os.putenv", "os.exec", "os.posix_spawn", "os.system", "_thread.start_new_thread"
    ):
        seen.append(event)
before = set(sys.modules)
sys.addaudithook(watch)
import goodput
loaded = sorted(set(sys.modules) - before)
print(json.dumps([seen, threading.active_count(), loaded]))
"""
    path = os.pathsep.join(str(room.parent) for room in ROOMS.values())
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    seen, threads, loaded = json.loads(done.stdout)
    assert seen == []
    assert threads == 1
    assert [name for name in loaded if name.split(".")[0] not in {"goodput", *sys.stdlib_module_names}] == []
