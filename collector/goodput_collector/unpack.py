"""Bodies of requests as they were before they were compressed, never larger than allowed."""

from __future__ import annotations

import zlib

import pyarrow as pa

from goodput_collector.errors import BadRequestError

_GZIP = 16 + zlib.MAX_WBITS


def unpack(body: bytes, encoding: str, most_bytes: int) -> bytes:
    """The body without its content encoding (`""`, `identity`, `gzip` or `zstd`).

    Raises BadRequestError for another encoding (415), for a body that is damaged, and for one that holds more than
    `most_bytes` (413), without ever holding more.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        data = body
    elif encoding in ("gzip", "x-gzip"):
        data = _gunzip(body, most_bytes)
    elif encoding == "zstd":
        try:
            with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
                data = stream.read(most_bytes + 1)
        except (OSError, pa.ArrowException) as error:
            raise BadRequestError("The body is no whole zstd stream; send it again.") from error
    else:
        raise BadRequestError("The body's encoding is not known here; send gzip, zstd, or none.", status=415)
    if len(data) > most_bytes:
        raise BadRequestError(f"The body holds more than {most_bytes:,} bytes; send less at a time.", status=413)
    return data


def _gunzip(body: bytes, most_bytes: int) -> bytes:
    parts: list[bytes] = []
    room = most_bytes + 1
    rest = body
    while rest and room > 0:
        reader = zlib.decompressobj(_GZIP)
        try:
            part = reader.decompress(rest, room)
        except zlib.error as error:
            raise BadRequestError("The body is no gzip stream; send it again.") from error
        parts.append(part)
        room -= len(part)
        if not reader.eof:
            if room > 0:
                raise BadRequestError("The body is no whole gzip stream; send it again.")
            break
        rest = reader.unused_data
    return b"".join(parts)
