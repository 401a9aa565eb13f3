"""The app's frame, run by Streamlit: pages, the choice of the run, and whose clock is shown."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from goodput_dashboard import context, login
from goodput_dashboard.context import carried

_SCREENS = Path(__file__).parent / "screens"
_ICON = Path(__file__).parent / "icon.png"
# Of our own: the icons that come with Streamlit would be fetched from elsewhere for the browser's tab.
# Path, title and icon, in the order in which questions come.
PAGES = (
    ("fleet", "Fleet", ":material/dashboard:"),
    ("run", "Run", ":material/timeline:"),
    ("incidents", "Incidents", ":material/warning:"),
    ("stragglers", "Stragglers", ":material/speed:"),
    ("checkpoints", "Checkpoints", ":material/save:"),
    ("compare", "Compare", ":material/compare_arrows:"),
    ("quality", "Data quality", ":material/fact_check:"),
)
OF_A_RUN = ("run", "incidents", "stragglers", "checkpoints", "quality")

# Digits of one width, so that figures stand under one another; figures that fit their boxes; less empty space above.
_STYLE = """<style>
[data-testid=stMetricValue], [data-testid=stTable] { font-variant-numeric: tabular-nums; }
[data-testid=stMetricValue] { font-size: 1.6rem; }
[data-testid=stMetricLabel], [data-testid=stMetricLabel] * { white-space: normal !important; overflow: visible; }
[data-testid=stMainBlockContainer] { padding-top: 3rem; padding-bottom: 3rem; }
@media (max-width: 640px) {
  [data-testid=stMainBlockContainer] { padding-left: 1rem; padding-right: 1rem; }
  [data-testid=stMetricValue] { font-size: 1.3rem; }
}
</style>"""


def main() -> None:
    """Draws the frame, then the page."""
    st.set_page_config(page_title="Goodput", page_icon=str(_ICON), layout="wide")
    login.admit()
    pages = [
        st.Page(_SCREENS / f"{path}.py", title=title, icon=icon, url_path=path, default=path == "fleet")
        for path, title, icon in PAGES
    ]
    chosen = st.navigation(pages, position="hidden")
    st.html(_STYLE)
    with st.sidebar:
        st.markdown("## Goodput")
        _choose_run(chosen.url_path in OF_A_RUN)
        for page, (_, title, icon) in zip(pages, PAGES, strict=True):
            st.page_link(page, label=title, icon=icon, query_params=carried())
        st.segmented_control(
            "Times in",
            ["UTC", "local"],
            default="UTC",
            required=True,
            key="tz",
            bind="query-params",
            help="Local is your browser's time zone.",
        )
        where = context.source().where
        st.caption(f"Reading {Path(where).name if context.source().is_file else where}")
        login.offer_logout()
    chosen.run()


def _choose_run(wanted: bool) -> None:
    """The run that the pages are about. The address may name one that is not on the shelf yet."""
    # Only who comes without a run's name has to wait for the first ones.
    asked = st.query_params.get("run") or st.session_state.get("run")
    shelved = context.shelf().look(wait_s=1.5 if wanted and not asked else 0.0)
    names = context.names(shelved)
    for asked in (st.query_params.get("run"), st.session_state.get("run")):
        if asked and asked not in names:
            names.append(asked)
    if not names:
        st.session_state.pop("run", None)
        return
    if "run" not in st.session_state:
        asked = st.query_params.get("run")
        if not wanted and asked is None:
            # Nothing has been chosen yet; the first is taken once a page needs it.
            return
    st.selectbox("Run", names, key="run", bind="query-params", help="The run that the pages below are about.")


main()
