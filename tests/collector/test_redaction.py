"""What looks like a secret is blotted out before it is kept; nothing else changes, not by a byte."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_events import by_hand, write
from service_running import goodput

from goodput_analytics import report
from goodput_collector.chunks import Chunk
from goodput_collector.database import open_database
from goodput_collector.errors import GoodputCollectorError
from goodput_collector.landing import ingest_files
from goodput_collector.rebuild import rebuild
from goodput_collector.redaction import NOTHING, USUAL, Redaction
from goodput_collector.store import Store

SECRETS = {
    "an environment": ({"env": {"WANDB_API_KEY": "0123abcd", "PATH": "/bin"}}, "0123abcd", "/bin"),
    "a list of words": ({"argv": ["x.py", "--api-key", "qwerty", "--lr", "0.1"]}, "qwerty", "0.1"),
    "a command line": ({"cmd": "x.py --hf-token Xyz-Abc9 --lr 1e-3"}, "Xyz-Abc9", "1e-3"),
    "a variable": ({"cmd": "AWS_SECRET_ACCESS_KEY=a/b+c python x.py"}, "a/b+c", "python x.py"),
    "an address": ({"store": "postgres://me:hunter2@db/runs"}, "hunter2", "@db/runs"),
    "a header": ({"said": "401 for Authorization: Bearer abc.def-ghi"}, "abc.def-ghi", "401"),
    "a key of a service": ({"note": "used hf_abcdefghijklmnopqrst here"}, "hf_abcdefghijklmnopqrst", "here"),
    "a quoted value": ({"said": 'config {"password": "a b"} and more, password="qrs"'}, "qrs", "and more"),
    "a key file": (
        {"said": "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----\nx"},
        "MIIabc",
        "x",
    ),
    "beyond ASCII": ({"said": "clé é☃ token=sécret☃9 fin"}, "sécret☃9", "fin"),
}


def start(meta: object) -> bytes:
    event = {
        "kind": "start", "run": "secret=abc", "source": "token=abcdef", "seq": 0, "ts_ns": 5, "rank": 0,
        "world_size": 1, "attempt_token": "token-123456", "job": "password=letmein", "meta": meta,
    }  # fmt: skip
    return json.dumps(event).encode() + b"\n"


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("escaped", [True, False])
def test_a_secret_goes_and_the_rest_stays(name: str, escaped: bool) -> None:
    meta, secret, stays = SECRETS[name]
    line = start(meta)
    if not escaped:
        line = json.dumps(json.loads(line), ensure_ascii=False).encode() + b"\n"
    told = USUAL.lines(line)
    assert len(told) == len(line)
    before, after = json.loads(line), json.loads(told)
    assert secret not in json.dumps(after, ensure_ascii=False) and stays in json.dumps(after, ensure_ascii=False)
    # By these an event is told apart: whatever they look like, they stay.
    assert {**after, "meta": None} == {**before, "meta": None}
    assert USUAL.lines(told) == told


@pytest.mark.parametrize(
    "words",
    [
        "KeyError: 'token' in tokenizer.json",
        "max_tokens=4096 num_tokens: 1234567 tokens/s=12",
        "Unexpected token 12 in JSON; the token is invalid",
        "token: null, password=None, use_auth_token=True",
        "passed 7 tests, bypass=1, author=me, keyboard=us",
        "RuntimeError: CUDA error: device-side assert triggered at /opt/x.py:12",
    ],
)
def test_words_of_the_trade_are_no_secrets(words: str) -> None:
    line = json.dumps({"kind": "stop", "reason": "exception", "detail": words}).encode() + b"\n"
    assert USUAL.lines(line) == line


@given(st.binary(max_size=200), st.text(max_size=40), st.booleans())
def test_any_bytes_stay_as_long_and_in_as_many_lines(noise: bytes, text: str, inside: bool) -> None:
    data = start({"api_key": text, "x": f"password={text}"}) if inside else b'{"kind":"start","meta":' + noise + b"\n"
    told = USUAL.lines(data + noise + b"\n" + data)
    assert len(told) == len(data + noise + b"\n" + data)
    assert [at for at, byte in enumerate(told) if byte == 10] == [
        at for at, byte in enumerate(data + noise + b"\n" + data) if byte == 10
    ]
    if inside:
        after = json.loads(told[: len(data)])
        assert after["meta"]["api_key"] == "*" * len(after["meta"]["api_key"])


def test_patterns_of_ones_own() -> None:
    line = start({"x": "project atlas, cost centre 4711", "k": "password=abc"})
    told = json.loads(Redaction([r"atlas", r"cost centre (\d+)"], usual=False).lines(line))
    assert told["meta"] == {"x": "project *****, cost centre ****", "k": "password=abc"}
    assert NOTHING.lines(line) is line
    with pytest.raises(GoodputCollectorError, match="no regular expression"):
        Redaction(["("])


def test_neither_archive_nor_database_hold_it_and_nothing_counts_otherwise(tmp_path: Path) -> None:
    events = by_hand()
    for event in events:
        if event["kind"] == "start":
            event["labels"], event["meta"] = {"team": "nlp"}, {"cmd": "x.py --api-key QWERTY7"}
        if event["kind"] == "stop":
            event["detail"] = "401 for https://me:QWERTY7@hub/x"
    file = write(tmp_path / "e.jsonl", events)
    broken = b'{"kind":"odd","password":"QWERTY7"}\n{"kind":"start","meta":{"password":"QWERTY7","x":"y\n'
    file.write_bytes(file.read_bytes() + broken)
    ingest_files(tmp_path / "g.duckdb", [file])
    store = Store(tmp_path / "c.duckdb", tmp_path / "c.archive")
    data = file.read_bytes()
    (answer,) = store.take([Chunk(stream="s", offset_bytes=0, data=data)])
    assert answer.offset_bytes == len(data)
    kept = [
        record.data for group in store.archive.groups(store.lander.position().__class__()) for record in group.records
    ]
    store.close()
    assert sum(map(len, kept)) == len(data)
    # Unknown kinds are kept in the archive as they came.
    assert b"".join(kept).count(b"QWERTY7") == 1
    ingest_files(tmp_path / "raw.duckdb", [file], redaction=NOTHING)
    told = []
    for name in ("g", "c", "raw"):
        con = open_database(tmp_path / f"{name}.duckdb", read_only=True)
        told.append(report(con, "by-hand").as_json())
        words = con.execute(
            "SELECT meta FROM ev_start UNION ALL SELECT detail FROM ev_stop UNION ALL SELECT decode(head) FROM rejected"
        ).fetchall()
        assert any("QWERTY7" in word for (word,) in words) == (name == "raw")
        con.close()
    assert told[0] == told[1] == told[2]
    # What was loaded is known again, though what was kept is not what the file holds.
    again = ingest_files(tmp_path / "g.duckdb", [file])
    assert again.events == 0


@pytest.mark.parametrize(
    ("redaction", "kept"),
    [
        (NOTHING, [b"letmein", b"atlas"]),
        (Redaction(["atlas"]), []),
        (Redaction(["atlas"], usual=False), [b"letmein"]),
        (USUAL, [b"atlas"]),
    ],
)
def test_the_beginnings_of_rejected_lines_are_looked_through_as_one_asked(
    redaction: Redaction, kept: list[bytes], tmp_path: Path
) -> None:
    data = b'{"kind":"odd","password":"letmein","place":"atlas"}\n{"kind":"start","password":"letmein","place":"atlas\n'
    store = Store(tmp_path / "c.duckdb", tmp_path / "c.archive", redaction)
    store.take([Chunk(stream="s", offset_bytes=0, data=data)])
    store.close()
    rebuild(tmp_path / "c.archive", tmp_path / "again.duckdb", redaction)
    file = tmp_path / "e.jsonl"
    file.write_bytes(data)
    ingest_files(tmp_path / "g.duckdb", [file], redaction=redaction)
    for name in ("c", "again", "g"):
        con = open_database(tmp_path / f"{name}.duckdb", read_only=True)
        heads = [head for (head,) in con.execute("SELECT head FROM rejected").fetchall()]
        con.close()
        assert len(heads) == 2
        for head in heads:
            assert [word for word in (b"letmein", b"atlas") if word in head] == kept, name


def test_the_command_takes_patterns(tmp_path: Path) -> None:
    events = by_hand()
    events[0]["meta"] = {"where": "atlas", "password": "letmein"}
    file = write(tmp_path / "e.jsonl", events)
    for name, words in (("a", ("--redact", "atlas")), ("b", ("--no-redaction",))):
        db = tmp_path / f"{name}.duckdb"
        assert goodput("ingest", file, "--db", db, *words).returncode == 0
        con = open_database(db, read_only=True)
        (meta,) = con.execute("SELECT meta FROM ev_start WHERE meta LIKE '%where%'").fetchall()[0]
        con.close()
        assert json.loads(meta) == (
            {"where": "*****", "password": "*******"} if name == "a" else {"where": "atlas", "password": "letmein"}
        )
    done = goodput("ingest", file, "--db", tmp_path / "c.duckdb", "--redact", "(")
    assert done.returncode == 1 and "no regular expression" in done.stderr
