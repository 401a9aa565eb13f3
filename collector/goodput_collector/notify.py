"""Words to the service manager: systemd's notification protocol, one datagram each (man 3 sd_notify)."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


class ServiceManager:
    """Who started this process and wants to hear of it; nobody, where the environment names none."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        env = os.environ if environment is None else environment
        self._address = env.get("NOTIFY_SOCKET", "")
        try:
            watchdog_s = int(env.get("WATCHDOG_USEC", "0")) / 1_000_000
        except ValueError:
            watchdog_s = 0.0
        self.watchdog_s = watchdog_s if watchdog_s > 0 else None
        """Seconds within which it must hear `alive` again; None where it does not watch."""

    def ready(self) -> None:
        """The service has begun its work."""
        self._say("READY=1")

    def stopping(self) -> None:
        """The service ends."""
        self._say("STOPPING=1")

    def alive(self) -> None:
        """The service still works."""
        self._say("WATCHDOG=1")

    def status(self, text: str) -> None:
        """One line for people."""
        self._say(f"STATUS={' '.join(text.split())}")

    def _say(self, message: str) -> None:
        if not self._address.startswith(("/", "@")):
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.setblocking(False)  # a manager that does not read must not hold the service up
                sock.connect(address)
                sock.sendall(message.encode())
        except OSError:
            pass  # nor must one that does not listen
