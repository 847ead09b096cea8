# SPDX-License-Identifier: GPL-2.0
"""nagletrace-flame: lost time by call stack of the held write, as folded stacks or as an interactive picture."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from .. import __version__
from ..cli import Parser, add_output_option, add_source_options, run_command, write_whole
from ..source import Source, check_source
from ..templating import render
from ..units import milliseconds
from .stacks import Stacks, folded, no_namer
from .svg import ROW, lay_out
from .symbols import BccNamer, bcc_namer

TEMPLATE = Path(__file__).parent / "templates" / "flame.svg"
#: Height of the text above the picture, and of each remark: enough for a telephone, where lines wrap.
HEAD, REMARK = 172, 20


def parser() -> Parser:
    options = Parser("nagletrace-flame", __doc__)
    add_source_options(options)
    options.add_argument("--output", choices=["folded", "svg"], default="folded",
                         help="folded: write lines for flamegraph.pl or speedscope (the default); "
                         "svg: draw a picture for browsers")
    add_output_option(options)
    options.add_argument("--symbols", choices=["bcc", "none"], default="none",
                         help="bcc: name code made at run time (Java, Node.js) and in containers, on the host of the "
                         "recording while its processes live (default %(default)s)")
    return options


def picture(stacks: Stacks, name: str, remarks: list[str]) -> Iterable[str]:
    flame = lay_out(stacks.excess_us)
    if flame.left_out:
        remarks = [*remarks, f"{flame.left_out} frames too narrow to be seen are left out."]
    lead = "No stall is recorded here." if stacks.reported else "No stall."
    if stacks.stalls:
        lead = (f"{stacks.stalls} stalls lost {milliseconds(flame.total_us)}. The wider a frame, the more time was "
                "lost by writes held below it.")
    head = HEAD + REMARK * len(remarks)
    return [render(TEMPLATE, flame=flame, row=ROW, head=head, lead=lead, origin=f"From {name}.", remarks=remarks,
                   version=__version__)]


def make_flame(source: Source, output: str, namer: BccNamer | None) -> tuple[Iterable[str], list[str]]:
    """Returns the output's text, and remarks about it."""
    stacks = Stacks(namer or no_namer)
    for record in source.records():
        stacks.add(record)
    stacks.finish()
    remarks = source.remarks() + stacks.remarks()
    if namer:
        remarks += namer.remarks()
    if output == "svg":
        return picture(stacks, source.name, remarks), remarks
    return folded(stacks), remarks


def run(options: argparse.Namespace) -> None:
    namer = bcc_namer() if options.symbols == "bcc" else None
    text, remarks = make_flame(Source(options), options.output, namer)
    write_whole(options.output_file, text)
    for remark in remarks:
        print(f"nagletrace-flame: {remark}", file=sys.stderr)


def main() -> int:
    options_parser = parser()
    options = options_parser.parse_args()
    check_source(options_parser, options)
    return run_command("nagletrace-flame", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
