# SPDX-License-Identifier: GPL-2.0
"""nagletrace-exporter: the daemon's counts for Prometheus. Needs no privilege but to write to the daemon's socket.

With --otlp.endpoint it hands the daemon's records on too.
"""

from __future__ import annotations

import argparse
import asyncio
import html
import logging
import os
import re
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry, ProcessCollector

from .. import __version__
from ..cli import Parser, bounded_number
from ..client import DEFAULT_SOCKET
from ..config_file import ConfigError, may_be_host
from ..logs import BoundedHandler
from .collector import MAX_SERIES, NagletraceCollector
from .otlp.carrier import Carrier
from .otlp.config import RESOURCE, OtlpConfigFile, endpoint, resource_attributes
from .web.clients import Refusals
from .web.config import ConfigFile
from .web.pages import PAGE, PLAIN, Fixed, Scrapes
from .web.server import App, Page, Server

log = logging.getLogger("nagletrace-exporter")

DEFAULT_ADDRESS = ":10040"
#: A running daemon answers in milliseconds. Prometheus gives up after 10 s, and a scrape may wait for two rounds.
DAEMON_TIMEOUT_S = 4.0
#: What may wait for the OTLP receiver.
QUEUE_RECORDS, QUEUE_MIB = 100_000, 16


def listen_address(text: str) -> tuple[str, int]:
    """":10040", "127.0.0.1:10040", "[::1]:10040"."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]]*)):(\d{1,5})", text)
    if not match or int(match[3]) > 65535 or not may_be_host(match[2] or ""):
        raise argparse.ArgumentTypeError(f"{text!r}: not an address; give for example :10040 or [::1]:10040")
    return match[1] or match[2] or "", int(match[3])


def telemetry_path(text: str) -> str:
    if not re.fullmatch(r"/[!-~]+", text) or "?" in text or "#" in text or text == "/-/healthy":
        raise argparse.ArgumentTypeError(f"{text!r}: not a path of its own; give for example /metrics")
    return text


def parser() -> argparse.ArgumentParser:
    options = Parser("nagletrace-exporter", __doc__)
    options.add_argument("--daemon.socket", dest="socket", type=Path, default=DEFAULT_SOCKET, metavar="PATH",
                         help="ask the daemon at this socket (default %(default)s)")
    options.add_argument("--daemon.max-series", dest="max_series", type=bounded_number(1, 100_000, "label sets"),
                         default=MAX_SERIES, metavar="N", help="accept up to N label sets from the daemon, as "
                         "many as its own --max-series (default %(default)s); a scrape needs 20 KB for each")
    options.add_argument("--metrics.exemplars", dest="exemplars", action="store_true",
                         help="add an exemplar to each histogram: process id, addresses, ports and bytes of its "
                         "last stall; every client that asks for OpenMetrics sees it")
    options.add_argument("--web.listen-address", dest="addresses", type=listen_address, action="append",
                         metavar="ADDRESS", help=f"listen at this address; repeatable (default {DEFAULT_ADDRESS})")
    options.add_argument("--web.telemetry-path", dest="path", type=telemetry_path, default="/metrics",
                         metavar="PATH", help="serve the metrics under this path (default %(default)s)")
    options.add_argument("--web.config.file", dest="config", type=Path, metavar="FILE",
                         help="take TLS and basic auth from this file, in the exporter toolkit's format")
    options.add_argument("--otlp.endpoint", dest="otlp", type=endpoint, metavar="URL",
                         help="hand each stall, late ACK and late hold on to this OTLP receiver, as log records over "
                         "HTTP; a URL without a path means /v1/logs")
    options.add_argument("--otlp.config.file", dest="otlp_config", type=Path, metavar="FILE",
                         help="take TLS, credentials and headers for the receiver from this file")
    options.add_argument("--otlp.queue-records", dest="otlp_records", type=bounded_number(1, 10_000_000, "records"),
                         metavar="N", help=f"let up to N records wait for the receiver (default {QUEUE_RECORDS})")
    options.add_argument("--otlp.queue-mib", dest="otlp_mib", type=bounded_number(1, 4096, "MiB"),
                         metavar="N", help=f"let what waits take up to N MiB of memory (default {QUEUE_MIB})")
    options.add_argument("--log.level", dest="level", choices=["debug", "info", "warning", "error"], default="info",
                         help="log messages of this level and above (default %(default)s)")
    return options


def parse() -> argparse.Namespace:
    options = parser()
    given = options.parse_args()
    for name, value in (("config.file", given.otlp_config), ("queue-records", given.otlp_records),
                        ("queue-mib", given.otlp_mib)):
        if value and not given.otlp:
            options.error(f"--otlp.{name} goes with --otlp.endpoint only")
    return given


def make_pages(registry: CollectorRegistry, metrics_path: str, daemon_socket: str) -> dict[str, Page]:
    """Returns the function that makes each page, by path."""
    landing = PAGE.format(version=__version__, socket=html.escape(daemon_socket), path=html.escape(metrics_path))
    return {
        "/": Fixed(landing.encode(errors="replace"), "text/html; charset=utf-8").answer,
        "/-/healthy": Fixed(b"OK\n", PLAIN).answer,
        metrics_path: Scrapes(registry).answer,
    }


def log_ready(server: Server) -> None:
    for listener in server.listeners:
        host, port = listener.getsockname()[:2]
        log.info("listening on %s", f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}")
    print("nagletrace-exporter: ready", file=sys.stderr, flush=True)


def carrier_of(options: argparse.Namespace) -> Carrier | None:
    """Returns what hands records on, if the options want that. Raises ConfigError."""
    if not options.otlp:
        return None
    return Carrier(options.socket, options.otlp, OtlpConfigFile(options.otlp_config, options.otlp.tls),
                   resource_attributes(os.environ.get(RESOURCE, "")), options.otlp_records or QUEUE_RECORDS,
                   (options.otlp_mib or QUEUE_MIB) << 20)


def main() -> int:
    options = parse()
    logging.basicConfig(level=options.level.upper(), handlers=[BoundedHandler(sys.stderr, "nagletrace-exporter")])
    registry = CollectorRegistry()
    registry.register(NagletraceCollector(options.socket, DAEMON_TIMEOUT_S, options.max_series, options.exemplars))
    refusals = Refusals()
    registry.register(refusals)
    ProcessCollector(registry=registry)
    try:
        carrier = carrier_of(options)
    except ConfigError as error:
        log.error("--otlp.config.file: %s", error)
        return 2
    if carrier:
        registry.register(carrier)
    pages = make_pages(registry, options.path, str(options.socket))
    try:
        server = Server(options.addresses or [listen_address(DEFAULT_ADDRESS)],
                        App(pages, ConfigFile(options.config), refusals))
    except ConfigError as error:
        log.error("--web.config.file: %s", error)
        return 2
    except OSError as error:
        log.error("--web.listen-address %s: %s; give another", error.filename, error.strerror or error)
        return 1
    if carrier:
        carrier.start()
    asyncio.run(server.run_until_signal(lambda: log_ready(server)))
    if carrier:
        carrier.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
