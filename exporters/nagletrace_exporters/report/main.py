# SPDX-License-Identifier: GPL-2.0
"""nagletrace-report: a recording of nagletrace, or what its daemon has, as one HTML page that needs no network."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .. import __version__
from ..cli import Parser, add_output_option, add_source_options, bounded_number, run_command, write_whole
from ..source import Source, check_source
from ..templating import render
from .ladder.choose import Chooser
from .page import make_page
from .summary import Summary

TEMPLATE = Path(__file__).parent / "templates" / "report.html"
DEFAULT_LADDERS = 6


def parser() -> Parser:
    options = Parser("nagletrace-report", __doc__)
    add_source_options(options)
    add_output_option(options)
    options.add_argument("--ladders", type=bounded_number(0, 50, "ladders"), default=DEFAULT_LADDERS, metavar="N",
                         help="draw up to N stalls as ladders (default %(default)s)")
    return options


def parse() -> argparse.Namespace:
    options_parser = parser()
    options = options_parser.parse_args()
    check_source(options_parser, options)
    if options.output_file == "-" and sys.stdout.isatty():
        options_parser.error("no place for the page: give -o FILE, for example -o stalls.html")
    return options


def make_report(source: Source, ladders: int) -> str:
    summary, chooser = Summary(), Chooser(ladders)
    for record in source.records():
        summary.add(record)
        chooser.add(record)
    page = make_page(summary, chooser.chosen(), source.name, source.remarks())
    page.read = [source.read()]
    return render(TEMPLATE, page=page, version=__version__)


def main() -> int:
    options = parse()
    return run_command("nagletrace-report", lambda: write_whole(
        options.output_file, [make_report(Source(options), options.ladders)]))


if __name__ == "__main__":
    sys.exit(main())
