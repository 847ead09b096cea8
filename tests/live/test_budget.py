# SPDX-License-Identifier: GPL-2.0
"""What each program costs the verifier, and of its stack: far from the limits on every kernel; the matrix prints it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from harness import run

pytestmark = [pytest.mark.guest, pytest.mark.quick]

#: The verifier gives up at a million instructions; a tenth leaves room for kernels that look more closely.
MOST_INSTRUCTIONS = 100_000
#: A program and the deepest function that it calls share this many bytes, each rounded up: MAX_BPF_STACK.
MOST_STACK, STACK_STEP = 512, 32
LOG = re.compile(r"the verifier on (\w+):\n(.*?\nprocessed \d+ .*?\n)", re.DOTALL)


@pytest.mark.parametrize("more", [(), ("--timeline", "--stacks", "-p", "1")], ids=["all", "timeline"])
def test_every_program_is_cheap_to_verify(more: tuple[str, ...], hooks: str,
                                          record_property: Callable[[str, object], None]) -> None:
    done = run("-vv", "--duration", "10ms", "--hooks", hooks, *more)
    assert done.returncode == 0, done.stderr
    # a kernel that refuses plain loads is asked again for probed reads: the last words count
    logs = {program: log for program, log in LOG.findall(done.stderr) if "verification time" in log}
    assert len(logs) >= 6, done.stderr
    for program, log in logs.items():
        instructions = int(re.search(r"processed (\d+) insns", log)[1])  # type: ignore[index]
        time = int(re.search(r"verification time (\d+) usec", log)[1])  # type: ignore[index]
        frames = re.search(r"stack depth ([\d+]+)", log)[1]  # type: ignore[index]
        record_property("budget", f"{program:<28} {instructions:>6} instructions  {time / 1000:>7.1f} ms"
                                  f"  stack {frames}")
        assert instructions <= MOST_INSTRUCTIONS, f"{program}: {instructions} instructions"
        main, *called = (-(-int(depth) // STACK_STEP) * STACK_STEP for depth in frames.split("+"))
        assert main + max(called, default=0) <= MOST_STACK, f"{program}: stack depth {frames}"
