"""Chunks of streams, and many of them in the body of one request. Standard library only: the agent uses it too.

A body is any number of frames: one line of JSON, `{"stream": NAME, "offset": N, "bytes": L}` (and `"final": true`),
then exactly L bytes. The answer to it is an object whose `streams` has one entry for each frame, in their order:
`{"stream": NAME, "status": 200, "offset": M}`; 409 for a chunk that did not begin where its stream stood, 429 (and
`retry_after_s`) for one that came too fast.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from goodput_collector.errors import BadRequestError

CONTENT_TYPE = "application/x-goodput-batch"
BODY_MAX_BYTES = 32 * 2**20
"""Most bytes of one request, unpacked."""
CHUNKS_MAX = 20_000
"""Most chunks of one request."""

_HEAD_MAX_BYTES = 1024
_NAME = re.compile(r"[A-Za-z0-9_.:@=+~-]{1,200}")
# A head as `encode` writes it. There are thousands a second; any other way to write it is read as JSON.
_HEAD = re.compile(
    rb'\{"stream":"([A-Za-z0-9_.:@=+~-]{1,200})","offset":(0|[1-9][0-9]{0,17}),"bytes":(0|[1-9][0-9]{0,8})(,"final":true)?\}\n'
)
_OFFSET_LIMIT = 2**62
_CUT = "The body ends inside a frame; send it whole."


class Chunk(NamedTuple):
    """Bytes of the stream `stream` from `offset_bytes` on. `final`: it never goes on after them.

    A named tuple, like all that is made for each of thousands of chunks a second: a frozen dataclass takes four times
    as long to make.
    """

    stream: str
    offset_bytes: int
    data: bytes
    final: bool = False


class Answer(NamedTuple):
    """Where a stream stands now, and whether the chunk began where it stood before."""

    offset_bytes: int
    fits: bool


def check_stream(name: str) -> str:
    """The name, if it can name a stream. Raises BadRequestError."""
    if _NAME.fullmatch(name) is None:
        raise BadRequestError("A stream's name has 1 to 200 letters, digits and signs of _.:@=+~- and nothing else.")
    return name


def check_offset(offset: object) -> int:
    """The offset, if it is one. Raises BadRequestError."""
    if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset < _OFFSET_LIMIT:
        raise BadRequestError("An offset is a whole number of bytes, 0 or more.")
    return offset


def encode(chunks: Sequence[Chunk]) -> bytes:
    """The chunks as a body."""
    parts: list[bytes] = []
    for chunk in chunks:
        head: dict[str, object] = {"stream": chunk.stream, "offset": chunk.offset_bytes, "bytes": len(chunk.data)}
        if chunk.final:
            head["final"] = True
        parts += [json.dumps(head, separators=(",", ":")).encode("ascii"), b"\n", chunk.data]
    return b"".join(parts)


def decode(body: bytes) -> list[Chunk]:
    """The chunks of a body. Raises BadRequestError."""
    chunks: list[Chunk] = []
    at = 0
    while at < len(body):
        if len(chunks) == CHUNKS_MAX:
            raise BadRequestError(
                f"A body has at most {CHUNKS_MAX:,} chunks; send the rest in another one.", status=413
            )
        usual = _HEAD.match(body, at)
        if usual is not None:
            stream, offset, length, last = usual.groups()
            begin = usual.end()
            at = begin + int(length)
            if at > len(body):
                raise BadRequestError(_CUT)
            chunks.append(Chunk(stream.decode("ascii"), int(offset), body[begin:at], last is not None))
            continue
        end = body.find(b"\n", at, at + _HEAD_MAX_BYTES)
        if end < 0:
            raise BadRequestError("A frame begins with a line of JSON of at most 1 KiB; this body has something else.")
        try:
            head = json.loads(body[at:end])
        except (ValueError, RecursionError):
            head = None
        if not isinstance(head, dict) or not isinstance(head.get("stream"), str):
            raise BadRequestError('A frame begins with {"stream": NAME, "offset": N, "bytes": L}; this one does not.')
        size, final = head.get("bytes"), head.get("final", False)
        if not isinstance(size, int) or isinstance(size, bool) or size < 0 or not isinstance(final, bool):
            raise BadRequestError('A frame\'s "bytes" is a whole number, 0 or more, and its "final" true or false.')
        at = end + 1 + size
        if at > len(body):
            raise BadRequestError(_CUT)
        chunks.append(
            Chunk(
                stream=check_stream(head["stream"]),
                offset_bytes=check_offset(head.get("offset")),
                data=body[end + 1 : at],
                final=final,
            )
        )
    return chunks
