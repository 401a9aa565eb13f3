"""Streams of made events, and a way to look at what a store holds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import landing_cases
from made_events import T0_NS, S, by_hand

from goodput_collector.chunks import Chunk
from goodput_collector.database import open_database
from goodput_collector.store import Store


def lines_by_source() -> dict[str, list[bytes]]:
    """The run that docs/ACCOUNTING.md checks by hand, as its sources would write it: names in the first line only."""
    sources: dict[str, list[bytes]] = {}
    for event in by_hand():
        own = sources.setdefault(event["source"], [])
        own.append(
            landing_cases.line({k: v for k, v in event.items() if not own or k not in ("run", "source")}) + b"\n"
        )
    return sources


def streams() -> dict[str, bytes]:
    """The same as spool files."""
    return {f"{source}.000000": b"".join(lines) for source, lines in lines_by_source().items()}


def steps(source: str, count: int, run: str = "many") -> bytes:
    """A stream of steps, a second each."""
    head = f'{{"run":"{run}","source":"{source}",'
    out = []
    for seq in range(count):
        start = T0_NS + seq * S
        first = head if seq == 0 else "{"
        times = f'"ts_ns":{start + S},"step":{seq + 1},"start_ns":{start},"end_ns":{start + S}'
        out.append(f'{first}"kind":"step","seq":{seq},{times}}}\n')
    return "".join(out).encode()


def in_pieces(data: bytes, chance: random.Random, largest: int = 400) -> list[tuple[int, bytes]]:
    """The bytes cut anywhere: (offset, piece)."""
    pieces, at = [], 0
    while at < len(data):
        size = chance.randint(1, largest)
        pieces.append((at, data[at : at + size]))
        at += size
    return pieces


def send_all(store: Store, streams: dict[str, bytes], chance: random.Random) -> None:
    """Sends streams as a bad network would: cut anywhere, repeated, late, in any order, but each from where the
    store says that it stands."""
    while True:
        stand = dict(zip(streams, store.offsets(list(streams)), strict=True))
        names = [name for name, data in streams.items() if stand[name] < data.rfind(b"\n") + 1]
        if not names:
            return
        chosen = chance.sample(names, chance.randint(1, len(names)))
        chunks = []
        for name, at in zip(chosen, store.offsets(chosen), strict=True):
            wrong = chance.choice([0, 0, 0, -7, 11])
            begin = max(at + wrong, 0)
            chunks.append(
                Chunk(stream=name, offset_bytes=begin, data=streams[name][begin : begin + chance.randint(1, 900)])
            )
        answers = store.take(chunks)
        for chunk, at, answer in zip(chunks, store.offsets(chosen), answers, strict=True):
            assert answer.offset_bytes == at
            assert answer.fits or chunk.offset_bytes != at


def state(db: Path) -> dict[str, Any]:
    """All that a database holds, with names for keys."""
    con = open_database(db, read_only=True)
    try:
        found = landing_cases.state(con.execute)
        found["streams"] = con.execute(
            "SELECT name, offset_bytes, fingerprint, carry_run, carry_source FROM streams ORDER BY name"
        ).fetchall()
        found["stream_runs"] = con.execute(
            "SELECT name, run FROM stream_runs JOIN streams USING (stream_id) JOIN runs USING (run_id) ORDER BY ALL"
        ).fetchall()
        found["places"] = con.execute(
            "SELECT name, r.offset_bytes, reason FROM rejected r JOIN streams USING (stream_id) ORDER BY ALL"
        ).fetchall()
        found["position"] = con.execute("SELECT * FROM archive_position").fetchall()
        return found
    finally:
        con.close()
