# SPDX-License-Identifier: GPL-2.0
"""nagletrace-report: a recording of nagletrace, or what its daemon has, as one HTML page that needs no network."""

from __future__ import annotations

import argparse
import sys

from . import __version__
from .chosen import Chooser
from .options import Parser, add_output_option, add_source_options, bounded_number
from .output import OutputError, write_whole
from .page import make_page
from .recording import RecordingError
from .source import Source, check_source
from .summary import Summary
from .templating import render

DEFAULT_LADDERS = 6


def parser() -> Parser:
    options = Parser("nagletrace-report", __doc__)
    add_source_options(options)
    add_output_option(options)
    options.add_argument("--ladders", type=bounded_number(0, 50, "ladders"), default=DEFAULT_LADDERS, metavar="N",
                         help="stalls that are drawn as ladders, at most (default %(default)s)")
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
    return render("report.html", page=page, version=__version__)


def main() -> int:
    options = parse()
    try:
        write_whole(options.output_file, [make_report(Source(options), options.ladders)])
    except RecordingError as error:
        print(f"nagletrace-report: {error}", file=sys.stderr)
        return error.code
    except OutputError as error:
        print(f"nagletrace-report: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("nagletrace-report: stopped; nothing was written", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
