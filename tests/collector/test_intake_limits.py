"""What is too much is refused or slowed down, and never held: bodies, queues, single streams."""

import gzip
import json
import threading
import zlib
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import made_streams
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput_collector import committer as committing
from goodput_collector.chunks import CHUNKS_MAX, Answer, Chunk, decode, encode
from goodput_collector.committer import Committer
from goodput_collector.errors import BadRequestError, BusyError, StorageError
from goodput_collector.pace import Pace
from goodput_collector.store import Store
from goodput_collector.unpack import unpack

names = st.from_regex(r"[A-Za-z0-9_.:@=+~-]{1,40}", fullmatch=True)
chunks = st.builds(
    Chunk, stream=names, offset_bytes=st.integers(0, 2**62 - 1), data=st.binary(max_size=60), final=st.booleans()
)


@given(st.lists(chunks, max_size=8))
def test_a_body_says_what_was_put_into_it(given_chunks: list[Chunk]) -> None:
    assert decode(encode(given_chunks)) == given_chunks


@given(st.lists(chunks, min_size=1, max_size=4))
def test_a_head_may_be_written_in_any_way(given_chunks: list[Chunk]) -> None:
    body = b"".join(
        json.dumps(
            {"final": one.final, "bytes": len(one.data), "offset": one.offset_bytes, "stream": one.stream}
        ).encode()
        + b"\n"
        + one.data
        for one in given_chunks
    )
    assert decode(body) == given_chunks


@pytest.mark.parametrize("head", ['{"stream":"a","offset":0,"bytes":3}', '{"stream": "a", "offset": 0, "bytes": 3}'])
def test_a_body_that_ends_inside_a_chunk_is_refused(head: str) -> None:
    assert decode(f"{head}\nabc".encode()) == [Chunk(stream="a", offset_bytes=0, data=b"abc")]
    with pytest.raises(BadRequestError, match="ends inside"):
        decode(f"{head}\nab".encode())


@given(st.binary(max_size=200))
def test_any_other_body_is_refused_and_nothing_else_happens(body: bytes) -> None:
    try:
        decode(body)
    except BadRequestError as error:
        assert error.status in (400, 413)


def test_a_body_has_a_limited_number_of_chunks() -> None:
    one = Chunk(stream="a", offset_bytes=0, data=b"")
    assert len(decode(encode([one] * CHUNKS_MAX))) == CHUNKS_MAX
    with pytest.raises(BadRequestError, match="at most") as told:
        decode(encode([one] * (CHUNKS_MAX + 1)))
    assert told.value.status == 413


@pytest.mark.parametrize("encoding", ["gzip", "zstd", ""])
def test_a_packed_body_may_hold_as_much_as_is_allowed_and_no_byte_more(encoding: str) -> None:
    def packed(data: bytes) -> bytes:
        if encoding == "zstd":
            return bytes(pa.compress(data, codec="zstd", asbytes=True))
        return gzip.compress(data) if encoding else data

    data = bytes(range(256)) * 4
    assert unpack(packed(data), encoding, len(data)) == data
    with pytest.raises(BadRequestError) as told:
        unpack(packed(data), encoding, len(data) - 1)
    assert told.value.status == 413


def test_gzip_in_several_members_is_one_body() -> None:
    assert unpack(gzip.compress(b"a\n") + gzip.compress(b"b\n"), "gzip", 100) == b"a\nb\n"
    with pytest.raises(BadRequestError):
        unpack(gzip.compress(b"a\n") + zlib.compress(b"b\n"), "gzip", 100)


def test_a_stream_that_comes_too_fast_waits_and_loses_nothing() -> None:
    now = 100.0
    pace = Pace(1000.0, burst_s=4.0, clock_s=lambda: now)
    sent = refused = 0
    began = now
    while sent < 50_000:
        wait_s = pace.wait_s("fast", 1000)
        if wait_s > 0:
            refused += 1
            now += wait_s
        else:
            sent += 1000
        assert pace.wait_s("slow", 0) == 0
    assert refused > 0
    # What came beyond the first burst came at the pace that is allowed.
    assert now - began == pytest.approx((50_000 - 4000) / 1000, abs=1.01)
    # One that is larger than the bucket is taken when the bucket is full.
    assert pace.wait_s("large", 10_000) == 0
    assert pace.wait_s("large", 1) > 0
    now += 10
    assert pace.wait_s("large", 10_000) == 0


class HeldStore:
    """A store whose disk does nothing until it is let."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.taken: list[Chunk] = []
        self.fails = False
        self.healthy = True

    def take(self, given_chunks: Sequence[Chunk]) -> list[Answer]:
        assert len({chunk.stream for chunk in given_chunks}) == len(given_chunks)
        self.let.wait(20)
        if self.fails:
            raise StorageError("The archive could not be written (No space left on device).")
        self.taken += given_chunks
        return [Answer(offset_bytes=chunk.offset_bytes + len(chunk.data), fits=True) for chunk in given_chunks]

    def heal(self) -> None:
        self.take([])


def test_what_waits_is_limited_and_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "QUEUE_MAX_BYTES", 50_000)
    store = HeldStore()
    committer = Committer(store)  # type: ignore[arg-type]
    answers: list[Future[list[Answer]]] = []
    with pytest.raises(BusyError) as told:
        for number in range(100):
            answers.append(committer.submit([Chunk(stream=f"s{number}", offset_bytes=0, data=bytes(5000))]))
    assert told.value.retry_after_s > 0 and len(answers) == 9
    assert committer.held_bytes <= 50_000
    store.let.set()
    assert [one.result(10)[0].offset_bytes for one in answers] == [5000] * 9
    assert committer.held_bytes == 0
    assert committer.submit([Chunk(stream="more", offset_bytes=0, data=b"x\n")]).result(10)
    assert committer.close()
    with pytest.raises(BusyError, match="stopping"):
        committer.submit([])


def test_chunks_of_one_stream_in_one_group_are_taken_in_turn(tmp_path: Path) -> None:
    store = Store(tmp_path / "c.duckdb", tmp_path / "c.archive")
    committer = Committer(store)
    data = made_streams.steps("s", 4)
    ends = [index + 1 for index, byte in enumerate(data) if byte == 10]
    pieces = [Chunk(stream="s", offset_bytes=a, data=data[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    assert [one.offset_bytes for one in committer.submit([*pieces, pieces[0]]).result(20)] == [*ends, ends[-1]]
    committer.close()
    store.close()


def test_a_disk_that_refuses_is_told_to_all_who_wait_and_forgotten_when_it_works_again() -> None:
    store = HeldStore()
    store.fails = True
    store.let.set()
    committer = Committer(store)  # type: ignore[arg-type]
    chunk = Chunk(stream="s", offset_bytes=0, data=b"x\n")
    with pytest.raises(StorageError, match="No space"):
        committer.submit([chunk]).result(10)
    assert committer.trouble is not None and committer.alive
    store.fails = False
    assert committer.submit([chunk]).result(10)
    assert committer.trouble is None
    committer.close()
    assert not committer.alive and committer.trouble is not None
