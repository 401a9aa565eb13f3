"""Where a login is set up, nobody sees a page without it; where none is, nothing is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import made_runs
from goodput_dashboard import context, login
from goodput_dashboard.launching import APP, VARIABLE


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[AppTest]:
    db = made_runs.database(tmp_path, made_runs.stormy())
    monkeypatch.setenv(VARIABLE, json.dumps({"where": str(db), "token_file": None}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(login.st.secrets, "load_if_toml_exists", lambda: False)
    monkeypatch.setattr(login.st, "get_option", lambda name: {"secrets.files": [str(tmp_path / "secrets.toml")]}[name])
    assert context.shelf().look(wait_s=60).missing == 0
    yield AppTest.from_file(str(APP), default_timeout=60)
    context.shelf().stop()
    context.source().close()
    context._opened.clear()


def buttons(at: AppTest) -> set[str]:
    return {one.label for one in at.button}


def test_without_a_login_nothing_is_asked(app: AppTest) -> None:
    app.run()
    assert app.metric and not buttons(app) & {"Log in", "Log out"}


def test_with_a_login_nothing_is_shown_before_it(app: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login.st, "user", {"is_logged_in": False})
    app.run()
    assert not app.exception
    assert buttons(app) == {"Log in"}
    assert not app.metric and not app.selectbox and not app.dataframe


def test_who_is_logged_in_sees_the_pages_and_the_way_out(app: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login.st, "user", {"is_logged_in": True, "email": "ada@example.org"})
    app.run()
    assert app.metric and "Log out" in buttons(app)
    assert any("ada@example.org" in one.value for one in app.sidebar.caption)


def test_secrets_that_cannot_be_read_let_nobody_in(app: AppTest, tmp_path: Path) -> None:
    (tmp_path / "secrets.toml").write_text("[auth\nclient_id = ")
    app.run()
    assert not app.metric
    assert any("cannot be read" in one.value for one in app.error)
