# SPDX-License-Identifier: GPL-2.0
"""Reads lines of JSON from outside, a recording or a daemon's socket, and alone bounds their size.

records.py checks their values; its printable() makes them harmless to print.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, BinaryIO

from .records import BadRecord

#: No record is longer: a report of a thousand connections with their stacks has a few MB.
MAX_LINE = 16 << 20
#: No record has more values: that report has some 200,000. The three bytes of `{},` become an object of 72 bytes.
MAX_VALUES = 500_000
CHUNK = 1 << 16
#: A number that is longer than any of ours. Before Python 3.11, parsing one with millions of digits takes hours.
LONG_NUMBER = re.compile(rb"\d{20}")
#: A text, where no escape is left, or what precedes a value.
TOKEN = re.compile(rb'"[^"]*"|[,\[{]')


class TooLarge(BadRecord):
    """The record has more bytes or values than its reader takes."""


def chunks_of(stream: BinaryIO) -> Iterator[bytes]:
    """Yields the contents of a file or a pipe as they arrive."""
    read = getattr(stream, "read1", stream.read)
    while chunk := read(CHUNK):
        yield chunk


def split_lines(chunks: Iterable[bytes], most: int = MAX_LINE) -> Iterator[bytes]:
    """Yields lines with their newlines; the last line may lack one.

    It yields the first `most` bytes of a longer line, and discards the rest as it arrives.
    """
    line = bytearray()
    for chunk in chunks:
        begin = 0
        while (end := chunk.find(b"\n", begin)) >= 0:
            line += chunk[begin:end + 1][:most - len(line)]
            yield bytes(line)
            line.clear()
            begin = end + 1
        line += chunk[begin:][:most - len(line)]
    if line:
        yield bytes(line)


def parse_object(line: bytes, most_bytes: int = MAX_LINE, most_values: int = MAX_VALUES) -> dict[str, Any]:
    """Returns a line's object. Raises TooLarge, or BadRecord if it is no object."""
    if len(line) >= most_bytes:
        raise TooLarge(f"longer than {most_bytes >> 10} KiB")
    if has_more_values(line, most_values):
        raise TooLarge(f"more than {most_values} values")
    try:
        # Given bytes, json would read UTF-16 too, where has_more_values() sees quotes that are none.
        text = line.decode("utf-8-sig", "surrogatepass")
        record = json.loads(text, parse_constant=refuse, parse_int=bounded_int if LONG_NUMBER.search(line) else None)
    except (ValueError, RecursionError) as error:
        raise BadRecord("not JSON") from error
    if not isinstance(record, dict):
        raise BadRecord("no object")
    return record


def has_more_values(line: bytes, most: int) -> bool:
    """Returns whether the line has more values than `most`.

    A comma precedes each value but the first of its list or object; a bracket precedes that one. In a text they precede
    none: to tell those apart takes longer, and few lines need it.
    """
    if sum(map(line.count, (b",", b"[", b"{"))) <= most:
        return False
    without_escapes = line.replace(rb"\\", b"").replace(rb'\"', b"")
    marks = (token for token in TOKEN.finditer(without_escapes) if len(token[0]) == 1)
    return next(islice(marks, most, None), None) is not None


def bounded_int(digits: str) -> int:
    if len(digits) > 30:
        raise ValueError("a number of too many digits")
    return int(digits)


def refuse(constant: str) -> None:
    """Refuses NaN and Infinity, which Python reads although JSON does not have them."""
    raise ValueError(constant)
