# SPDX-License-Identifier: GPL-2.0
"""nagletrace-exporter: the daemon's counts for Prometheus. Needs no privilege but to write to the daemon's socket."""

from __future__ import annotations

import argparse
import logging
import re
import signal
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry, ProcessCollector

from .collector import NagletraceCollector
from .daemon import DEFAULT_SOCKET
from .options import Parser
from .web import make_pages, serve
from .web_config import ConfigError, ConfigFile

log = logging.getLogger("nagletrace-exporter")

DEFAULT_ADDRESS = ":10040"
#: A daemon that is there answers in milliseconds; Prometheus gives up after 10 s.
DAEMON_TIMEOUT_S = 5.0


def listen_address(text: str) -> tuple[str, int]:
    """":10040", "127.0.0.1:10040", "[::1]:10040"."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]]*)):(\d{1,5})", text)
    if not match or int(match[3]) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: not an address; give for example :10040 or [::1]:10040")
    return match[1] or match[2] or "", int(match[3])


def telemetry_path(text: str) -> str:
    if not re.fullmatch(r"/[!-~]+", text) or "?" in text or "#" in text or text == "/-/healthy":
        raise argparse.ArgumentTypeError(f"{text!r}: not a path of its own; give for example /metrics")
    return text


def parser() -> argparse.ArgumentParser:
    options = Parser("nagletrace-exporter", __doc__)
    options.add_argument("--daemon.socket", dest="socket", type=Path, default=DEFAULT_SOCKET, metavar="PATH",
                         help="the daemon's socket (default %(default)s)")
    options.add_argument("--web.listen-address", dest="addresses", type=listen_address, action="append",
                         metavar="ADDRESS", help=f"where to listen, also several (default {DEFAULT_ADDRESS})")
    options.add_argument("--web.telemetry-path", dest="path", type=telemetry_path, default="/metrics",
                         metavar="PATH", help="where the metrics are (default %(default)s)")
    options.add_argument("--web.config.file", dest="config", type=Path, metavar="FILE",
                         help="TLS and basic auth, as of the exporter toolkit")
    options.add_argument("--log.level", dest="level", choices=["debug", "info", "warning", "error"], default="info",
                         help="(default %(default)s)")
    return options


def main() -> int:
    options = parser().parse_args()
    logging.basicConfig(level=options.level.upper(), format="nagletrace-exporter: %(message)s")
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    registry = CollectorRegistry()
    registry.register(NagletraceCollector(options.socket, DAEMON_TIMEOUT_S))
    ProcessCollector(registry=registry)
    pages = make_pages(registry, options.path, str(options.socket))
    try:
        servers = serve(options.addresses or [listen_address(DEFAULT_ADDRESS)], pages, ConfigFile(options.config))
    except ConfigError as error:
        log.error("--web.config.file: %s", error)
        return 2
    except OSError as error:
        log.error("--web.listen-address %s: %s; give another", error.filename, error.strerror or error)
        return 1
    for server in servers:
        host, port = server.server_address[:2]
        log.info("listening on %s", f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}")
    print("nagletrace-exporter: ready", file=sys.stderr, flush=True)
    signal.sigwait(signals)
    for server in servers:
        server.shutdown()
        server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
