# SPDX-License-Identifier: GPL-2.0
"""What the commands' options have in common: one line says what is wrong, with exit code 2."""

from __future__ import annotations

import argparse
import re
import sys
from typing import NoReturn

from . import __version__

DURATION_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
#: of watching the daemon
LONGEST_S = 24 * 3600.0


class Parser(argparse.ArgumentParser):
    """Says on one line what is wrong."""

    def __init__(self, prog: str, description: str | None) -> None:
        super().__init__(prog=prog, allow_abbrev=False, description=(description or "").split("\n")[0])
        self.add_argument("--version", action="version", version=f"{prog} {__version__}")

    def error(self, message: str) -> NoReturn:
        one_line = " ".join(message.removeprefix("argument ").split())
        print(f"{self.prog}: {one_line}; --help lists the options", file=sys.stderr)
        raise SystemExit(2)


def duration(text: str) -> float:
    """Seconds; with a unit, as nagletrace wants it too."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(us|ms|s|m|h)", text)
    if not match and re.fullmatch(r"[\d.]+", text):
        raise argparse.ArgumentTypeError(f"{text!r}: a duration needs a unit; for example 40ms, 5s or 2m")
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r}: not a duration; give for example 40ms, 5s or 2m")
    seconds = float(match[1]) * DURATION_UNITS[match[2]]
    if not 0 < seconds <= LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r}: must be more than zero and at most 24h; for example 30s")
    return seconds


def bounded_number(least: int, most: int, unit: str) -> type:
    """A type for argparse: a whole number from least to most."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,9}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: not a number of {unit}; give one from {least} to {most}")
        return int(text)

    return parse  # type: ignore[return-value]


def add_source_options(options: Parser) -> None:
    """Where the records come from; source.py reads them."""
    source = options.add_mutually_exclusive_group()
    source.add_argument("-i", "--input", metavar="FILE",
                        help="a recording of `nagletrace -o json`; - is stdin (the default)")
    source.add_argument("--socket", metavar="PATH", help="ask the daemon whose socket this is")
    options.add_argument("-d", "--duration", type=duration, metavar="DURATION",
                         help="with --socket: watch so long, stall by stall; without, what the daemon has")


def add_output_option(options: Parser) -> None:
    options.add_argument("-o", "--output-file", metavar="FILE", default="-",
                         help="written whole or not at all; - is stdout (the default)")
