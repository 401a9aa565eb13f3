"""Loaded by every Python process below `goodput run`, before its program: waits for torch, and does nothing else.

`goodput run` puts this folder first on PYTHONPATH, so the interpreter imports it in place of a `sitecustomize` of the
user's, which is loaded right after, as if this one were not there. It must run on any Python 3, cost next to nothing in
a process that never imports torch, and never raise.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    # The module itself would take more time than all of this.
    from typing import Any

_OLDEST = (3, 11)


class _TorchWatch:
    """A finder that finds nothing, but sees that torch is being imported and has us called when that is done."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> "Any":
        if name != "torch":
            return None
        try:
            sys.meta_path.remove(self)
            from importlib.util import find_spec

            spec = find_spec(name)  # type: Any
            loader = spec.loader
            execute = loader.exec_module

            def exec_module(module: "Any") -> None:
                try:
                    del loader.exec_module
                except Exception:
                    pass
                try:
                    execute(module)
                except BaseException as error:
                    # The user is to see the import's own lines, and no line of this file between them.
                    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
                    raise
                _torch_is_there()

            loader.exec_module = exec_module
            return spec
        except Exception:
            # The import goes on with the finders after this one, and tells the user what is wrong, if anything is.
            return None


def _torch_is_there() -> None:
    try:
        if sys.version_info < _OLDEST:
            _leave_word("python-%d.%d" % sys.version_info[:2])  # noqa: UP031
            return
        if "goodput" not in sys.modules:
            _load_goodput()
        from goodput.auto import torch_imported

        torch_imported()
    except Exception as error:
        _leave_word("failed-%s" % type(error).__name__)  # noqa: UP031


def _load_goodput() -> None:
    """Import the package that this file belongs to, whatever else is on the path of this Python."""
    from importlib.util import module_from_spec, spec_from_file_location

    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    spec = spec_from_file_location(
        "goodput",
        os.path.join(folder, "__init__.py"),  # noqa: PTH118
        submodule_search_locations=[folder],
    )
    module = module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules["goodput"] = module
    try:
        spec.loader.exec_module(module)  # type: ignore[union-attr]
    except BaseException:
        del sys.modules["goodput"]
        raise


def _leave_word(word: str) -> None:
    """Tell `goodput run` why nothing is recorded here."""
    try:
        with open(os.path.join(os.environ["_GOODPUT_LAUNCH"], word + ".word"), "w"):  # noqa: PTH118, PTH123
            pass
    except Exception:
        pass


def _stand_aside() -> None:
    """Take this folder off the path, and let the import of `sitecustomize` go on as it would have without us."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[:] = [path for path in sys.path if not path or os.path.abspath(path) != here]  # noqa: PTH100
    sys.path_importer_cache.pop(here, None)
    del sys.modules[__name__]
    # Where there is none this raises what the interpreter expects then, and leaves no module of that name.
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401


if __name__ == "sitecustomize":
    try:
        if os.environ.get("_GOODPUT_LAUNCH") and os.environ.get("_GOODPUT_RANK") in (None, str(os.getpid())):
            sys.meta_path.insert(0, _TorchWatch())
    except Exception:
        pass
    try:
        _stand_aside()
    except BaseException as error:
        # The lines of this file are taken off.
        error.__traceback__ = (
            error.__traceback__ and error.__traceback__.tb_next and error.__traceback__.tb_next.tb_next
        )
        raise
