# SPDX-License-Identifier: GPL-2.0
"""Recordings that somebody gives you, made to fill the memory of who reads them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import recordings as r
from run_exporter import played
from tools import tools

Kind = Callable[[], Iterator[r.Record]]

#: SECURITY.md: what report and flame take at most, whatever they read.
MOST_BYTES = 160 << 20
#: What join takes: DuckDB's 750 MB (--memory), and both programs besides.
JOIN_BYTES = 750_000_000 + (500 << 20)
#: Bytes of a recording that is played. The attack that was met had 231 MB and took 2.4 GB.
LARGE, SMALL = 60 << 20, 24 << 20


def name(number: int, length: int = 1000) -> str:
    """Long, different from all others, and of characters that take four bytes each in memory."""
    return f"{number:08}" + "\U0001f4a5" * (length - 8)


def stacks() -> Iterator[r.Record]:
    """Each stall with a stack of its own."""
    for number in range(1 << 30):
        yield r.seen(1_000_000 + number, 40_000, stack=r.stack(*(f"{number}_{frame}_" + "f" * 200
                                                               for frame in range(127))))


def wide_stacks() -> Iterator[r.Record]:
    for number in range(1 << 30):
        yield r.seen(1_000_000 + number, 40_000, stack=r.stack(name(number)))


def connections() -> Iterator[r.Record]:
    """Each stall of another process and connection, in a long cgroup."""
    for number in range(1 << 30):
        yield r.seen(1_000_000 + number, 40_000 + number % 1000, pid=number, cgroup=name(number),
                     comm=name(number, 100), local=f"10.0.0.1:{number}")


def durations() -> Iterator[r.Record]:
    """Few connections with stalls of all durations."""
    for number in range(1 << 30):
        yield r.seen(1_000_000 + number, (number * 7919) % (1 << 40), local=f"10.0.0.1:{number % 9000}")


def reports() -> Iterator[r.Record]:
    """Reports of connections with long advice and long stacks."""
    for number in range(1 << 30):
        yield r.report(*(r.connection(local=f"10.0.0.1:{number * 20 + n}", cause_text=name(n), fix=name(n),
                                      pattern_text=name(number),
                                      stack=r.stack(*(f"{n}_{frame}_{number}" + "f" * 80 for frame in range(127))))
                         for n in range(20)), closing=False)


def events() -> Iterator[r.Record]:
    """Events of many connections, and ever longer stalls among them, each of which is worth a ladder."""
    for number in range(1 << 30):
        connection = number % 500
        local, remote = f"10.0.0.1:{connection}", f"10.0.0.2:{number}"
        yield {**r.events()[0], "connection": connection, "local": local, "remote": remote, "comm": name(number, 120)}
        if number % 40 == 0:
            yield r.seen(1_000_000 + number, 40_000 + number, local=local, remote=remote)


PLAYED = (("flame", stacks, LARGE), ("flame", wide_stacks, LARGE), ("flame", reports, LARGE),
          ("report", reports, LARGE), ("report", connections, LARGE), ("report", durations, SMALL),
          ("report", events, SMALL))


def write(path: Path, kind: Kind, most_size: int, **more: object) -> None:
    """Each record has this, too."""
    size = 0
    with path.open("w") as out:
        out.write(json.dumps({**r.start(), **more}) + "\n")
        for record in kind():
            size += out.write(json.dumps({**record, **more}, ensure_ascii=False) + "\n")
            if size > most_size:
                break


@pytest.mark.slow
@pytest.mark.parametrize(("program", "kind", "most_size"), [
    pytest.param(program, kind, size, id=f"{program} {kind.__name__}") for program, kind, size in PLAYED])
def test_no_recording_takes_more_than_bounded_memory(tmp_path: Path, program: str, kind: Kind, most_size: int) -> None:
    path = tmp_path / "recording"
    write(path, kind, most_size)
    done, most = played(program, "-i", str(path), "-o", str(tmp_path / "out"))
    print(f"{program} {kind.__name__}: {most >> 20} MiB")
    assert done.returncode == 0, done.stderr
    assert most <= MOST_BYTES
    if program == "flame" and kind in (stacks, wide_stacks):
        assert b"stalls of stacks beyond the first" in done.stderr
    if program == "report" and kind is connections:
        page = (tmp_path / "out").read_text()
        assert "There were too many for a row each" in page and len(page) < 500_000
        assert "one in 32, and the longest" in page
    path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [stacks, wide_stacks, connections, durations], ids=lambda kind: str(kind.__name__))
@pytest.mark.parametrize("output", ["text", "json"])
def test_a_join_takes_what_it_may_and_its_programs_besides(tmp_path: Path, kind: Kind, output: str) -> None:
    paths = [tmp_path / f"{host}.jsonl" for host in ("a", "b")]
    for path in paths:
        write(path, kind, LARGE, host=path.stem, boot_id=path.stem)
    done, most = played("join", *map(str, paths), "--output", output, "-o", str(tmp_path / "out"),
                        python=tools() / "python3")
    print(f"join {kind.__name__} {output}: {most >> 20} MiB")
    assert done.returncode == 0, done.stderr
    assert most <= JOIN_BYTES
    for path in paths:
        path.unlink()


@pytest.mark.slow
def test_a_join_with_too_little_memory_says_what_helps(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path, wide_stacks, SMALL)
    done, _ = played("join", str(path), "--memory", "20MB", python=tools() / "python3")
    told, _ = done.stderr.splitlines()  # the second line is the memory
    assert done.returncode == 1 and b"give it more memory with --memory" in told
