"""Who may write and who may read: bearer tokens, and the addresses that need none."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from dataclasses import dataclass
from pathlib import Path

from goodput_collector.errors import GoodputCollectorError

_TOKEN_LEAST = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The tokens, None where none is asked for. Who may write with a token may read with it where no other is set."""

    write: str | None = None
    read: str | None = None

    def may_write(self, authorization: str | None) -> bool:
        """Whether a request with this `Authorization` header may write."""
        return self.write is None or _bears(authorization, self.write)

    def may_read(self, authorization: str | None) -> bool:
        """Whether a request with this `Authorization` header may read."""
        token = self.write if self.read is None else self.read
        return token is None or _bears(authorization, token)


def _bears(authorization: str | None, token: str) -> bool:
    scheme, _, given = (authorization or "").partition(" ")
    # Compared in constant time: an answer's delay must not tell how much of a guess was right.
    same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode("utf-8"))
    return same and scheme.lower() == "bearer"


def read_token(path: Path) -> str:
    """The token in a file: its first line. Raises GoodputCollectorError, with what to do."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise GoodputCollectorError(f"The token file {path} cannot be read ({reason}); check its name.") from error
    token = text.strip().splitlines()[0].strip() if text.strip() else ""
    if len(token) < _TOKEN_LEAST or not token.isascii() or " " in token:
        raise GoodputCollectorError(
            f"The token in {path} must be one line of {_TOKEN_LEAST} or more ASCII characters without blanks, such as "
            f"{secrets.token_urlsafe(24)}"
        )
    return token


def parse_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `[IPv6]:PORT` or `:PORT` as host and port. Raises ValueError with a plain sentence."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:9470")
    return host or "127.0.0.1", int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
