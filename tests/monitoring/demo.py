#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Starts the daemon, its exporter, Prometheus and Alertmanager, lets a program stall, and says where to look.

The program writes each request in two parts for a while, then has the fix for a while, and so on. Alerts are printed as
they reach the webhook.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from stack import HOLD, LOOK_BACK, ROOT, Program, Stack, running  # noqa: E402

STALLING_S, FIXED_S = 60.0, 40.0
PAGES = {"exporter": "/metrics", "prometheus": "/alerts", "alertmanager": "/#/alerts"}


def tell(alert: dict[str, Any]) -> None:
    name, summary = alert["labels"]["alertname"], alert["annotations"]["summary"]
    print(f"{time.strftime('%H:%M:%S')}  {alert['status']:<8}  {name}  {summary}", flush=True)


def say_where(stack: Stack) -> None:
    for name, address in stack.addresses.items():
        print(f"{name:>14}  {address}{PAGES[name]}")
    print(f"{'report':>14}  sudo build/nagletrace report --socket {stack.socket}")
    print(f"{'Grafana':>14}  import dashboards/grafana/nagletrace*.json where that Prometheus is a data source")
    print(f"Time is compressed: rates over {LOOK_BACK}, alerts after {HOLD}. Ctrl-C ends it.\n", flush=True)


def play(stack: Stack, what: str, arguments: list[str], seconds: float) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {what}", flush=True)
    lab: list[str | Path] = [ROOT / "build" / "nagle-lab", "write-write-read", "--over", "veth", "--rounds", "100000",
                             "--timeout", "3600s", *arguments]
    program = Program("lab", stack.directory / "lab.log", lab)
    try:
        time.sleep(seconds)
        if program.process.poll() is not None:
            raise RuntimeError(f"the lab has ended: {program.log.read_text()[-1000:]}")
    finally:
        program.stop()


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, metavar="S", help="how long it runs (600)")
    left = parser.parse_args().seconds
    signal.signal(signal.SIGTERM, interrupt)
    try:
        with tempfile.TemporaryDirectory(prefix="nagletrace-demo-") as directory, \
                running(Path(directory), tell=tell) as stack:
            say_where(stack)
            end = time.monotonic() + left
            while (left := end - time.monotonic()) > 0.5:
                play(stack, "a program writes each request in two parts", [], min(STALLING_S, left))
                left = end - time.monotonic()
                if left > 0.5:
                    play(stack, "the same with TCP_NODELAY", ["--nodelay", "--interval", "5ms"], min(FIXED_S, left))
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
