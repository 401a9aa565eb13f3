"""What people say of an incident: shown beside what was recorded, and taken down where a collector can keep it."""

from __future__ import annotations

from typing import Any

import streamlit as st

from goodput_analytics import Incident, Report
from goodput_collector.client import NOTE_MOST, WHO_MOST, Act, Cause, GoodputCollectorError, Wish
from goodput_dashboard import context, parts, words
from goodput_dashboard.figures import plain, when

NOT_SAID = "not said"


def said(report: Report) -> dict[tuple[int, int], dict[str, Any]]:
    """What was said of the run's incidents, by attempt and abort."""
    return {(row["attempt"], row["abort_ns"]): row for row in parts.rows("notes", report)}


def note(report: Report, one: Incident, told: dict[str, Any] | None) -> None:
    """What was said of one incident, and a form to say more."""
    if told is not None:
        why = f"**{told['said_cause']}**" if told["said_cause"] else ""
        words_of_it = plain(told["note"]) if told["note"] else ""
        who = f" by {plain(told['who'])}" if told["who"] else ""
        st.markdown(f"{': '.join(one for one in (why, words_of_it) if one)}", help=words.SAID_CAUSE)
        st.caption(f"Said{who}, {when(told['at_ns'], context.zone())} {parts.zone_name()}.")
    if context.source().is_file:
        st.caption(f"To say why it came about: `goodput correct incident RUN {one.attempt} --cause …`")
        return
    with st.expander("Say why it came about"), st.form(f"note-{one.attempt}-{one.abort_ns}", border=False):
        cause = st.selectbox("Cause", [NOT_SAID, *(cause.value for cause in Cause)], help=words.SAID_CAUSE)
        text = st.text_area("Note", max_chars=NOTE_MOST)
        who = st.text_input("Who says so", value=_who(), max_chars=WHO_MOST)
        if st.form_submit_button("Keep"):
            _keep(report, one, None if cause == NOT_SAID else Cause(cause), text.strip(), who.strip())


def _keep(report: Report, one: Incident, cause: Cause | None, text: str, who: str) -> None:
    wish = Wish(
        act=Act.INCIDENT,
        run=report.run,
        attempt=one.attempt,
        abort_ns=one.abort_ns,
        cause=cause,
        note=text or None,
        who=who,
    )
    try:
        context.source().correct(wish)
    except GoodputCollectorError as error:
        st.error(f"It was not kept: {plain(str(error))}")
    else:
        st.rerun()


def _who() -> str:
    """Who is logged in, where the server asks for that."""
    try:
        return str(st.user.get("email") or st.user.get("name") or "")
    except (AttributeError, KeyError):
        return ""
