# SPDX-License-Identifier: GPL-2.0
"""What the programs of all families need of the stack, of which the build machine's kernel may load only some."""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

BUILD = Path(__file__).parents[2] / "build"
#: A program and what it calls have so many bytes together, each rounded up: MAX_BPF_STACK and check_max_stack_depth()
#: of kernels before 6.13.
MOST, STEP = 512, 32
#: Of instructions: include/uapi/linux/bpf.h.
CALL, PSEUDO_CALL, MOV64, ADD64, LOAD, STORES, FRAME = 0x85, 1, 0xBF, 0x07, 1, (2, 3), 10


@dataclass
class Function:
    stack: int = 0
    calls: set[str] = field(default_factory=set)


def functions(path: Path) -> dict[str, Function]:
    """Each function of a BPF object with the deepest byte of its frame and the functions that it calls."""
    found: dict[str, Function] = defaultdict(Function)
    with path.open("rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".symtab")
        symbols = [symbol for symbol in table.iter_symbols() if symbol["st_info"]["type"] == "STT_FUNC"]
        starts = {(symbol["st_shndx"], symbol["st_value"]): symbol.name for symbol in symbols}
        relocated = {(section["sh_info"], relocation["r_offset"]): table.get_symbol(relocation["r_info_sym"])
                     for section in elf.iter_sections("SHT_REL") for relocation in section.iter_relocations()}
        for symbol in symbols:
            section, code = symbol["st_shndx"], elf.get_section(symbol["st_shndx"]).data()
            function, copies = found[symbol.name], set()
            for place in range(symbol["st_value"], symbol["st_value"] + symbol["st_size"], 8):
                operation, registers, offset, value = struct.unpack_from("<BBhi", code, place)
                to, source = registers & 15, registers >> 4
                if operation & 7 in STORES and to == FRAME or operation & 7 == LOAD and source == FRAME:
                    function.stack = max(function.stack, -offset)
                elif operation == MOV64 and source == FRAME:
                    copies.add(to)
                elif operation == ADD64 and to in copies:
                    function.stack = max(function.stack, -value)
                    copies.discard(to)
                elif operation == CALL and source == PSEUDO_CALL:
                    target, ahead = relocated.get((section, place)), (value + 1) * 8
                    if not target:
                        called = section, place + ahead
                    elif target["st_info"]["type"] == "STT_SECTION":
                        called = target["st_shndx"], ahead
                    else:
                        called = target["st_shndx"], target["st_value"]
                    function.calls.add(starts[called])
    return found


def deepest(name: str, all_of_them: dict[str, Function]) -> tuple[int, str]:
    """The bytes of a function and what it calls, and which of them these are."""
    function = all_of_them[name]
    below, chain = max((deepest(called, all_of_them) for called in function.calls), default=(0, ""))
    return max(STEP, -(-function.stack // STEP) * STEP) + below, f"{name} {function.stack} {chain}"


@pytest.mark.parametrize("name", ["nagletrace", "probed"])
def test_no_program_needs_more_stack_than_the_oldest_kernel_has(name: str) -> None:
    found = functions(BUILD / f"{name}.bpf.o")
    assert len(found) > 20 and found["hold_judge"].stack
    assert not [(depth, chain) for depth, chain in (deepest(name, found) for name in found) if depth > MOST]
