# SPDX-License-Identifier: GPL-2.0
"""What the programs of all families need of the stack, of which the build machine's kernel may load only some."""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

OBJECT = Path(__file__).parents[2] / "build" / "nagletrace.bpf.o"
#: A program and what it calls have so many bytes together, each rounded up: MAX_BPF_STACK and check_max_stack_depth()
#: of kernels before 6.13.
MOST, STEP = 512, 32
CALL, MOV64, ADD64, FRAME = 0x85, 0xBF, 0x07, 10
LOAD, STORE, STORE_REGISTER = 1, 2, 3


@dataclass
class Function:
    stack: int = 0
    calls: set[str] = field(default_factory=set)


def strings(table: bytes, at: int) -> str:
    return table[at:table.index(b"\0", at)].decode()


def functions(elf: bytes) -> dict[str, Function]:
    """Each function of a BPF object with the deepest byte of its frame and the functions that it calls."""
    [at], (size, count) = struct.unpack_from("<Q", elf, 40), struct.unpack_from("<HH", elf, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, at + n * size) for n in range(count)]
    body = [elf[s[4]:s[4] + s[5]] if s[1] != 8 else b"" for s in sections]
    symbols_at = next(n for n, s in enumerate(sections) if s[1] == 2)
    symbols = list(struct.iter_unpack("<IBBHQQ", body[symbols_at]))
    names = body[sections[symbols_at][6]]
    starts = {(s[3], s[4]): strings(names, s[0]) for s in symbols if s[1] & 15 == 2}
    relocated = {(s[7], place): symbols[info >> 32] for s, b in zip(sections, body) if s[1] == 9
                 for place, info in struct.iter_unpack("<QQ", b)}
    found: dict[str, Function] = defaultdict(Function)
    for symbol in symbols:
        if symbol[1] & 15 != 2:
            continue
        section, start, length = symbol[3:]
        function, copies = found[starts[section, start]], set()
        for place in range(start, start + length, 8):
            code, registers, offset, value = struct.unpack_from("<BBhi", body[section], place)
            to, source = registers & 15, registers >> 4
            kind = code & 7
            if kind in (STORE, STORE_REGISTER) and to == FRAME or kind == LOAD and source == FRAME:
                function.stack = max(function.stack, -offset)
            elif code == MOV64 and source == FRAME:
                copies.add(to)
            elif code == ADD64 and to in copies:
                function.stack = max(function.stack, -value)
                copies.discard(to)
            elif code == CALL and source == 1:
                target = relocated.get((section, place))
                where = (target[3], target[4] + (value + 1) * 8 if target[1] & 15 == 3 else target[4]) if target else (
                    section, place + (value + 1) * 8)
                function.calls.add(starts[where])
    return found


def deepest(name: str, all_of_them: dict[str, Function]) -> tuple[int, str]:
    """The bytes of a function and what it calls, and which of them these are."""
    function = all_of_them[name]
    below, chain = max((deepest(called, all_of_them) for called in function.calls), default=(0, ""))
    return max(STEP, -(-function.stack // STEP) * STEP) + below, f"{name} {function.stack} {chain}"


def test_no_program_needs_more_stack_than_the_oldest_kernel_has() -> None:
    found = functions(OBJECT.read_bytes())
    assert len(found) > 20 and found["hold_judge"].stack
    assert not [(depth, chain) for depth, chain in (deepest(name, found) for name in found) if depth > MOST]
