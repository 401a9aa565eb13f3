"""What several pages are made of: the run's head, tables that can be taken away, charts, and calm words for trouble."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from goodput_analytics import Report, UnknownRun
from goodput_dashboard import charts, context, words
from goodput_dashboard.colours import STATE_BADGES
from goodput_dashboard.figures import UNKNOWN, counted, plain, when
from goodput_dashboard.shelf import LIVE
from goodput_dashboard.source import Answer

Rows = list[dict[str, Any]]

ROW_PX, LINE_PX = 35, 20
MOST_OPEN = 25
"""Rows of a table that are all shown at once; a longer one scrolls."""


def page(body: Callable[[Report], None], every_s: float = context.REFRESH_S) -> None:
    """A page about one run: its head, then `body`; by itself again after `every_s` seconds while the run is at work."""
    run = st.session_state.get("run")
    if not run:
        nothing_yet()
        return
    first = _report(run)
    if first is None:
        return
    again = every_s if first.state in LIVE and not context.source().is_file else None

    @st.fragment(run_every=again)
    def show() -> None:
        report = _report(run)
        if report is not None:
            head(report)
            body(report)

    show()


def nothing_yet(*, by_itself: bool = False) -> None:
    """Where there is no run: what to do. `by_itself`: what it stands in is looked at again anyway."""
    source = context.source()
    seen = context.shelf().look(wait_s=1.0)
    if seen.trouble is not None:
        trouble(Answer(None, None, seen.trouble))
    elif not seen.whole:
        st.info("The runs are being read. This page goes on by itself.", icon=":material/hourglass_empty:")
        if not by_itself:
            again()
    elif source.is_file:
        st.info(f"This database holds no run yet. Load event files with: `goodput ingest FILE... --db {source.where}`")
    else:
        st.info(
            "The collector has heard of no run yet. Start a training with `goodput run -- COMMAND`, "
            "or try `goodput demo`."
        )


def _report(run: str) -> Report | None:
    try:
        told = context.source().report(run)
    except UnknownRun as unknown:
        st.warning(f"There is no run named **{plain(run)}** here.")
        if unknown.known:
            st.caption(
                f"There {'is' if len(unknown.known) == 1 else 'are'} {counted(len(unknown.known), 'run')}; "
                "choose one at the side."
            )
        return None
    trouble(told)
    return told.value


def trouble(answer: Answer[Any]) -> None:
    """Says what kept us from hearing more, and how old the figures are; nothing where all is well."""
    if answer.trouble is None:
        return
    if answer.at_s is None:
        st.info(f"{plain(answer.trouble)}  \nThis page tries again by itself.", icon=":material/cloud_off:")
        again()
    else:
        as_of = when(int(answer.at_s) * 1_000_000_000, context.zone())
        st.info(f"{plain(answer.trouble)}  \nThe figures are those of {as_of}.", icon=":material/cloud_off:")


def again() -> None:
    """Has the page looked at again in a few seconds."""

    @st.fragment(run_every=context.REFRESH_S)
    def look() -> None:
        tries = st.session_state.get("_tries", 0)
        st.session_state["_tries"] = tries + 1
        if tries % 2:
            st.rerun()

    look()


def head(report: Report) -> None:
    """The run's name, what it does, and as of when."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"### {plain(report.run)}", width="content")
        st.badge(report.state.value, color=STATE_BADGES.get(report.state, "gray"), help=words.STATES.get(report.state))  # type: ignore[arg-type]
    st.caption(f"As of {when(report.as_of_ns, context.zone())} {zone_name()}")


def zone_name() -> str:
    """The zone's name, for captions."""
    return "UTC" if str(context.zone()) in ("UTC", "datetime.timezone.utc") else str(context.zone())


def rows(name: str, report: Report, **limits: int | None) -> Rows:
    """Rows of a view or a relation of the run, as mappings; empty where there are none."""
    most = limits.pop("most", None)
    told = context.source().rows(
        name, report.run, from_ns=limits.get("from_ns"), to_ns=limits.get("to_ns"), most=2_000 if most is None else most
    )
    return [] if told.value is None else told.value.to_pylist()


def chart(figure: go.Figure, key: str, alt: str, *, select: bool = False) -> Any:
    """A chart, with a picture to save, and words for those who do not see it.

    Streamlit makes a chart anew when its data change, so that a zoom inside it does not outlive them: what shall last
    is selected, and kept in the address.
    """
    if select:
        return st.plotly_chart(
            figure, key=key, config=charts.config(key), alt=alt, on_select="rerun", selection_mode="box"
        )
    figure.update_layout(dragmode="zoom")
    return st.plotly_chart(figure, key=key, config=charts.config(key), alt=alt)


def table(
    told: Sequence[Mapping[str, Any]] | pd.DataFrame,
    key: str,
    *,
    config: Mapping[str, Any] | None = None,
    alt: str,
    select: bool = False,
    order: Sequence[str] | None = None,
    lines: int = 1,
    absent: str = UNKNOWN,
) -> Any:
    """A table that sorts, and that can be taken away as CSV or Parquet.

    With more `lines` to a row long texts wrap. `absent` stands where there is no value.
    """
    frame = told if isinstance(told, pd.DataFrame) else pd.DataFrame(list(told))
    shown: Any = st.dataframe(
        frame,
        key=key,
        hide_index=True,
        column_config=dict(config or {}),
        column_order=list(order) if order is not None else None,
        alt=alt,
        height="content" if len(frame) <= MOST_OPEN else "auto",
        row_height=None if lines == 1 else ROW_PX + LINE_PX * (lines - 1),
        placeholder=absent,
        on_select="rerun" if select else "ignore",
        selection_mode="single-row",
    )
    with st.container(horizontal=True, gap="small"):
        st.download_button(
            "CSV",
            data=lambda: frame.to_csv(index=False).encode(),
            file_name=f"{key}.csv",
            mime="text/csv",
            key=f"{key}_csv",
            on_click="ignore",
            type="tertiary",
            icon=":material/download:",
            help="This table as CSV",
        )
        st.download_button(
            "Parquet",
            data=lambda: _parquet(frame),
            file_name=f"{key}.parquet",
            mime="application/vnd.apache.parquet",
            key=f"{key}_parquet",
            on_click="ignore",
            type="tertiary",
            icon=":material/download:",
            help="This table as Parquet",
        )
    return shown


def _parquet(frame: pd.DataFrame) -> bytes:
    out = io.BytesIO()
    flat = frame.copy()
    for name in flat.columns:
        if flat[name].map(lambda value: isinstance(value, list | tuple | dict)).any():
            flat[name] = flat[name].astype(str)
    flat.to_parquet(out, index=False)
    return out.getvalue()


def selected_row(event: Any) -> int | None:
    """The row that was clicked."""
    chosen = event.selection.rows if event is not None else []
    return int(chosen[0]) if chosen else None
