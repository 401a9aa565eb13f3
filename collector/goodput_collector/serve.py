"""`goodput collect`: everything put together, run, and ended in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import uvicorn
import uvloop

from goodput_collector.access import Access, is_loopback
from goodput_collector.app import CollectorApp
from goodput_collector.committer import Committer
from goodput_collector.early import Found
from goodput_collector.errors import BusyError, GoodputCollectorError
from goodput_collector.metrics import MetricOptions
from goodput_collector.metrics_board import Board, BoardThread
from goodput_collector.notify import ServiceManager
from goodput_collector.pace import Pace
from goodput_collector.redaction import USUAL, Redaction
from goodput_collector.reports import Reports
from goodput_collector.requests import CheckpointRequests
from goodput_collector.retaining import RetentionThread
from goodput_collector.shipping import SPOOL_MAX_BYTES, Shipper
from goodput_collector.sinks import LocalSink
from goodput_collector.store import Store
from goodput_collector.trust import check_spool, drop_rights
from goodput_collector.watching import Watch

_REQUESTS_END_S = 1
"""Seconds that open requests get when the collector is told to stop."""
_WRITER_ENDS_S = 2.5
_STATUS_S = 10.0
_INTERRUPT_EVERY_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """How to collect.

    Attributes:
        spool: the spool directory of this machine; None to take nothing but what is sent.
        db, archive: the database file and the archive's folder.
        host, port: where to listen; port 0 takes any.
        access: the tokens.
        insecure: listen beyond this machine without a token.
        keep_spool: leave spool files where they are.
        spool_max_bytes: most bytes in the spool.
        stream_bytes_per_s: how fast one stream may come.
        metrics: what /metrics tells.
        keep_raw_s: how long rows of ranks are kept, in seconds; None: for ever.
        redaction: what is blotted out of what is kept.
    """

    spool: Path | None
    db: Path
    archive: Path
    host: str
    port: int
    access: Access
    insecure: bool = False
    keep_spool: bool = False
    spool_max_bytes: int = SPOOL_MAX_BYTES
    stream_bytes_per_s: float = 64 * 2**20
    metrics: MetricOptions = field(default_factory=MetricOptions)
    redaction: Redaction = USUAL
    keep_raw_s: float | None = 7 * 86_400.0


def _keep(committer: Committer, found: Found) -> None:
    """Has what a report found kept by the thread that writes, when it comes to it."""
    with contextlib.suppress(BusyError):
        committer.call(lambda store: store.keep_early(found))


def serve(options: ServeOptions, say: Callable[[str], None]) -> None:
    """Collects until SIGTERM or SIGINT, then keeps what has come and returns, in under 5 s.

    Raises GoodputCollectorError, with what to do, where it cannot begin.
    """
    if not is_loopback(options.host) and options.access.write is None and not options.insecure:
        raise GoodputCollectorError(
            f"{options.host} can be reached from other machines: set a token with --token-file, or say --insecure."
        )
    owner = None
    if options.spool is not None:
        owner = check_spool(options.spool)
        drop_rights(owner)
    with _listening(options.host, options.port) as listener, _stored(options) as store:
        committer = Committer(store)
        reports = Reports(store)
        reports.keep = partial(_keep, committer)
        requests = CheckpointRequests(time.time_ns, store.asked())
        board = Board(store, reports, committer, options.metrics, db=options.db)
        refreshing = BoardThread(board, say)
        app = CollectorApp(
            store=store,
            committer=committer,
            reports=reports,
            requests=requests,
            access=options.access,
            pace=Pace(options.stream_bytes_per_s),
            board=board,
        )
        retaining = None
        if options.keep_raw_s is not None:
            retaining = RetentionThread(committer, say, keep_raw_s=options.keep_raw_s)
        watch = None
        if options.spool is not None and owner is not None:
            shipper = Shipper(
                options.spool,
                LocalSink(committer, requests.now),
                owner_uid=owner,
                complain=say,
                keep=options.keep_spool,
                max_bytes=options.spool_max_bytes,
            )
            watch = Watch(shipper, say)
        # Thousands of short-lived objects a second, and what was imported: to look through them all again and again
        # would take a third of the time.
        gc.freeze()
        gc.set_threshold(100_000, 50, 100)
        refreshing.start()
        if retaining is not None:
            retaining.start()
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_run(app, committer, reports, listener, watch, options, say))
        finally:
            if watch is not None:
                watch.stop(1.0)
            refreshing.stop()
            if retaining is not None:
                retaining.stop()
            reports.stop()
            reports.let_go()
            refreshing.join(1.0)
            if not committer.close(_WRITER_ENDS_S):
                # What it holds was acknowledged to nobody, or is in the archive: the next start lands it.
                say("the disk did not take the last group in time; it will be taken at the next start")


async def _run(
    app: CollectorApp,
    committer: Committer,
    reports: Reports,
    listener: socket.socket,
    watch: Watch | None,
    options: ServeOptions,
    say: Callable[[str], None],
) -> None:
    config = uvicorn.Config(
        app.starlette(),
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=_REQUESTS_END_S,
        timeout_keep_alive=75,
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=64 * 1024,
    )
    server = _Server(config)
    manager = ServiceManager()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        manager.stopping()
        stopping.set()
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        host, port = listener.getsockname()[:2]
        say(f"collecting on http://{f'[{host}]' if ':' in host else host}:{port} into {options.db}")
        if watch is not None:
            watch.start()
        manager.ready()
        every_s = min(_STATUS_S, manager.watchdog_s / 2) if manager.watchdog_s else _STATUS_S
        while not serving.done():
            if committer.alive:
                manager.alive()
            manager.status(committer.trouble or "taking events")
            # A report that takes long must not hold the end up.
            waiting = asyncio.create_task(stopping.wait())
            await asyncio.wait([serving, waiting], timeout=every_s, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            while stopping.is_set() and not serving.done():
                reports.stop()
                await asyncio.wait([serving], timeout=_INTERRUPT_EVERY_S)
    finally:
        await serving


class _Server(uvicorn.Server):
    """A server that leaves signals to us: uvicorn would raise them again after its end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise GoodputCollectorError(
            f"{host}:{port} cannot be listened on ({error.strerror or error}); name another address with --listen."
        ) from error
    with listener:
        yield listener


@contextlib.contextmanager
def _stored(options: ServeOptions) -> Iterator[Store]:
    store = Store(options.db, options.archive, options.redaction)
    try:
        yield store
    finally:
        store.close()


def say_on_stderr(sentence: str) -> None:
    """One line for whoever reads the log."""
    print(f"goodput: {' '.join(sentence.split())}", file=sys.stderr, flush=True)
