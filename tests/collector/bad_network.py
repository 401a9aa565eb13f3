"""A proxy that does to requests what bad networks and their proxies do: drops, delays, repeats and cuts them."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections import Counter


class BadNetwork:
    """Listens on a port of its own and passes requests on to another, each with a fate of its own.

    Attributes:
        fates: how many requests met which fate.
    """

    FATES = ("pass", "pass", "pass", "drop", "delay", "lose_answer", "twice", "cut", "cut_answer")
    """Dealt like cards, so that each comes as often as it stands here."""

    def __init__(self, port: int, seed: int) -> None:
        self.fates: Counter[str] = Counter()
        self._to = port
        self._chance = random.Random(seed)
        self._deck: list[str] = []
        self._dealing = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        sock.settimeout(60)
        with sock, contextlib.suppress(OSError):
            while request := _message(sock):
                fate = self._deal()
                if fate == "drop":
                    return
                if fate == "delay":
                    time.sleep(self._chance.uniform(0, 0.5))
                if fate == "cut":
                    self._forward(request[: self._chance.randint(1, len(request) - 1)], wait=False)
                    return
                answer = self._forward(request)
                if fate == "twice":
                    again = self._forward(request)
                    answer = self._chance.choice([answer, again])
                if fate == "lose_answer" or not answer:
                    return
                if fate == "cut_answer":
                    sock.sendall(answer[: self._chance.randint(0, len(answer) - 1)])
                    return
                sock.sendall(answer)

    def _deal(self) -> str:
        with self._dealing:
            if not self._deck:
                self._deck = self._chance.sample(self.FATES, len(self.FATES))
            fate = self._deck.pop()
            self.fates[fate] += 1
            return fate

    def _forward(self, data: bytes, *, wait: bool = True) -> bytes:
        try:
            with socket.create_connection(("127.0.0.1", self._to), timeout=60) as sock:
                sock.sendall(data)
                return _message(sock) if wait else b""
        except OSError:
            return b""


def _message(sock: socket.socket) -> bytes:
    """One HTTP message with a Content-Length; nothing when the other side has gone."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = sock.recv(65536)
        if not part:
            return b""
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    size = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
    )
    while len(body) < size:
        part = sock.recv(1 << 20)
        if not part:
            return b""
        body += part
    return head + b"\r\n\r\n" + body
