"""What every page needs to know: where to read, whose clock to show, and which state the address bar carries."""

from __future__ import annotations

import atexit
import json
import os
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

from goodput_dashboard.launching import VARIABLE
from goodput_dashboard.shelf import Shelf, Shelved
from goodput_dashboard.source import Source

CARRIED = ("run", "tz", "from", "to")
"""Parameters of the address that go along from page to page."""
REFRESH_S = 5.0
SELDOM_S = 30.0
"""For pages that one looks into for long, and that cost a collector more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the dashboard shows: a collector's URL or a file, and the file with the token for reading."""

    where: str
    token_file: str | None = None

    @classmethod
    def from_environment(cls) -> Options:
        """Of this process. Raises KeyError where it was not started by the command."""
        return cls(**json.loads(os.environ[VARIABLE]))


@st.cache_resource(max_entries=4, show_spinner=False)
def _opened(where: str, token_file: str | None) -> tuple[Source, Shelf]:
    token = Path(token_file).read_text(encoding="utf-8").strip() if token_file else None
    source = Source(where, token)
    shelf = Shelf(source)
    atexit.register(shelf.stop)
    return source, shelf


def source() -> Source:
    """Where this server reads; shared by all sessions."""
    options = Options.from_environment()
    return _opened(options.where, options.token_file)[0]


def shelf() -> Shelf:
    """The reports of all runs; shared by all sessions."""
    options = Options.from_environment()
    return _opened(options.where, options.token_file)[1]


def names(shelved: Shelved) -> list[str]:
    """The runs that can be chosen, the one heard from last first. A file tells its names before anything is computed;
    a collector is not asked for more than what the shelf asks for, which may take it long."""
    found = [one.report.run for one in shelved.entries]
    known = shelved.names or (tuple(source().names().value or ()) if source().is_file else ())
    return found + [name for name in known if name not in set(found)]


def zone() -> tzinfo:
    """The time zone that the reader chose: UTC, or that of the browser."""
    if st.session_state.get("tz", "UTC") != "local":
        return UTC
    try:
        return ZoneInfo(st.context.timezone or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return UTC


def carried(**more: str) -> dict[str, str]:
    """The parameters to take along to another page."""
    kept = {key: st.query_params[key] for key in CARRIED if key in st.query_params}
    if (run := st.session_state.get("run")) is not None:
        kept["run"] = run
    if more.get("run", kept.get("run")) != kept.get("run"):
        kept.pop("from", None)
        kept.pop("to", None)
    return {**kept, **more}
