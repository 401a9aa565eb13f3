"""Who may see the pages, where Streamlit's own login by OpenID Connect has been set up."""

from __future__ import annotations

from pathlib import Path

import streamlit as st


def admit() -> None:
    """Goes on for who is logged in, and where no login has been set up; all others get the way in, and nothing else.

    A login is set up by a section `[auth]` in Streamlit's secrets. Secrets that are there and cannot be read let nobody
    in: what they would have asked for is not known.
    """
    if not st.secrets.load_if_toml_exists() and any(Path(file).exists() for file in st.get_option("secrets.files")):
        st.error("The secrets of this server cannot be read, so nobody is let in. Its log says what is wrong.")
        st.stop()
    if st.user.get("is_logged_in") is False:
        st.markdown("## Goodput")
        st.button("Log in", type="primary", on_click=st.login)
        st.stop()


def offer_logout() -> None:
    """Whom the pages take the reader for, and the way out; nothing where no login has been set up."""
    if st.user.get("is_logged_in"):
        st.caption(f"Logged in as {st.user.get('email') or st.user.get('name') or st.user.get('sub')}")
        st.button("Log out", on_click=st.logout)
