# SPDX-License-Identifier: GPL-2.0
"""nagletrace-flame: lost time by call stack of the held write, as folded stacks or as an interactive picture."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from . import __version__
from .flame_drawing import ROW, lay_out
from .ladder import milliseconds
from .options import Parser, add_output_option, add_source_options
from .output import OutputError, write_whole
from .recording import RecordingError
from .source import Source, check_source
from .stacks import Stacks, folded, no_namer
from .symbols import BccNamer, SymbolsError, bcc_namer
from .templating import render

#: Height of what is above the picture, and what a remark adds: enough for a telephone, where lines wrap.
HEAD, REMARK = 172, 20


def parser() -> Parser:
    options = Parser("nagletrace-flame", __doc__)
    add_source_options(options)
    options.add_argument("--output", choices=["folded", "svg"], default="folded",
                         help="folded: for flamegraph.pl or speedscope (the default); svg: a picture for a browser")
    add_output_option(options)
    options.add_argument("--symbols", choices=["bcc", "none"], default="none",
                         help="bcc: name code made at run time (Java, Node.js) and in containers, on the host of the "
                         "recording while its processes live (default %(default)s)")
    return options


def picture(stacks: Stacks, name: str, remarks: list[str]) -> Iterable[str]:
    flame = lay_out(stacks.excess_us)
    if flame.left_out:
        remarks = [*remarks, f"{flame.left_out} frames too narrow to be seen are left out."]
    lead = "No stall is recorded here." if stacks.told else "No stall."
    if stacks.stalls:
        lead = (f"{stacks.stalls} stalls lost {milliseconds(flame.total_us)}. The wider a frame, the more time was "
                "lost by writes held below it.")
    head = HEAD + REMARK * len(remarks)
    return [render("flame.svg", flame=flame, row=ROW, head=head, lead=lead, origin=f"From {name}.", remarks=remarks,
                   version=__version__)]


def run(source: Source, output: str, namer: BccNamer | None) -> tuple[Iterable[str], list[str]]:
    """The text, and what there is to say of it."""
    stacks = Stacks(namer or no_namer)
    for record in source.records():
        stacks.add(record)
    stacks.finish()
    remarks = source.remarks() + stacks.remarks()
    if namer and namer.gone:
        remarks.append(f"{len(namer.gone)} processes are gone, or began after their stalls: their frames stay unnamed.")
    if output == "svg":
        return picture(stacks, source.name, remarks), remarks
    return folded(stacks), remarks


def main() -> int:
    options_parser = parser()
    options = options_parser.parse_args()
    check_source(options_parser, options)
    try:
        namer = bcc_namer() if options.symbols == "bcc" else None
        text, remarks = run(Source(options), options.output, namer)
        write_whole(options.output_file, text)
    except RecordingError as error:
        print(f"nagletrace-flame: {error}", file=sys.stderr)
        return error.code
    except (OutputError, SymbolsError) as error:
        print(f"nagletrace-flame: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("nagletrace-flame: stopped; nothing was written", file=sys.stderr)
        return 1
    for remark in remarks:
        print(f"nagletrace-flame: {remark}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
