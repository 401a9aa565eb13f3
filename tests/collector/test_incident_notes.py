"""What people say of an incident on the dashboard's page is kept by the collector behind it."""

import json
from pathlib import Path

import pytest
from service_running import Collector
from streamlit.testing.v1 import AppTest

import made_runs
from goodput_collector.client import open_client
from goodput_dashboard import context
from goodput_dashboard.launching import APP, VARIABLE


def test_a_note_can_be_left_in_a_collector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with Collector(tmp_path, "--no-spool") as collector:
        data = "".join(json.dumps(event) + "\n" for event in made_runs.stormy().events).encode()
        assert collector.post("/v1/streams/s?offset=0", data)[0] == 200
        monkeypatch.setenv(VARIABLE, json.dumps({"where": collector.url, "token_file": None}))
        try:
            at = AppTest.from_file(str(APP), default_timeout=60)
            at.run()
            at.switch_page("screens/incidents.py")
            at.query_params["run"] = "stormy"
            at.run()
            assert not at.exception, [one.message for one in at.exception]
            by_label = {one.label: one for one in (*at.selectbox, *at.text_area, *at.text_input)}
            by_label["Cause"].set_value("user")
            by_label["Note"].set_value("wrong flag")
            by_label["Who says so"].set_value("me")
            next(one for one in at.button if one.label == "Keep").click()
            at.run()
            assert not at.exception, [one.message for one in at.exception]
            assert "**user**: wrong flag" in "".join(one.value for one in at.markdown)
        finally:
            context.shelf().stop()
            context.source().close()
            context._opened.clear()
        (row,) = open_client(collector.url).relation("notes", "stormy").table.to_pylist()
        assert (row["said_cause"], row["note"], row["who"]) == ("user", "wrong flag", "me")
