# SPDX-License-Identifier: GPL-2.0
"""Every packet script against what nagletrace says of the kernel's end of its connection.

The scripts are played in one network namespace, some at a time, under one tracer; then each is a test of its own.
"""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import subprocess
import time
from collections.abc import Iterator
from multiprocessing.pool import Pool
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any, NamedTuple

import peer
import pytest
from ends import far_end, own_end
from harness import IN_GUEST, PATIENCE, ROOT, Record, Tracer, dropped, unseen
from spaces import Namespace, enter_network

PAGES = [page.read_text() for page in sorted((Path(__file__).parent / "scripts").glob("*.txt"))]
SCRIPTS = [script for page in PAGES for script in peer.parse(page)]
#: So many are played at a time, each by a process of its own on a link of its own.
PLAYERS = 1 if IN_GUEST else 12  # each makes the others of a guest late
#: What the kernel does at once comes no later than this; in ms.
AT_ONCE_MS = 100.0 if IN_GUEST else 8.0
#: Those that are played again begin so long apart, or the kernel's timers of one script would wake all who play it in
#: one tick: at 400 ms, the timer wheel tells times apart by 32 ms.
APART_S = 0.04
#: No step is done later than this, or the script was another one.
LATE_MS = 20.0 if IN_GUEST else 4.0
#: No step of an exact script is: nagletrace allows an answer to come a tick of the kernel's late, and that may be 4 ms.
EXACT_LATE_MS = 2.5
#: No wait is told as shorter or longer than it was played by more; in us.
EXACT_US = 10_000 if IN_GUEST else 500
#: How far it may be where a socket keeps a time to a jiffy only, and no function is hooked.
JIFFY_US = 8_000
#: A script that was not played as it stands is played again, before it is known what is said of it.
ATTEMPTS = 8
FIRST_PORT = 20000
SETTINGS = {
    "tcp_no_metrics_save": 1,  # no script learns from the one before
    "tcp_invalid_ratelimit": 0, "tcp_challenge_ack_limit": 1000000,  # no answer to what is invalid is left out
    "tcp_congestion_control": "reno",
}


#: Of this player's process.
links: list[peer.Link] = []


def enter(space: int, number: Synchronized[int]) -> None:
    """A player's process begins: in the namespace, with its link, and ahead of what else runs on this machine."""
    with number.get_lock():
        number.value += 1
        n = number.value
    enter_network(Path(f"/proc/{space}/ns/net"))
    link = peer.Link(n)
    links.append(link)
    commands = [f"addr add {link.ours[4]}/24 dev {link.name}", f"addr add {link.ours[6]}/64 dev {link.name} nodad",
                f"link set {link.name} up"]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), text=True, check=True)
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def play(index: int, port: int, delay_s: float) -> peer.Played:
    time.sleep(delay_s)
    return peer.Player(SCRIPTS[index], links[0], port, AT_ONCE_MS).play()


class Told(NamedTuple):
    """A script as it was played last, and what was said of it."""

    played: peer.Played
    records: list[Record]
    closing: Record
    hooks: str
    hidden: list[int]  # one for each timer that the machine hid while the scripts of this round were played


class Stage:
    """The namespace and the players in it."""

    def __init__(self, space: Namespace, pool: Pool) -> None:
        self.space, self.pool = space, pool
        self.told: dict[int, Told] = {}
        self.strangers: list[Record] = []
        #: of each tracer: owners counted as not found, ends told without a pid, ends told
        self.owners: list[tuple[int, int, int]] = []
        self.late = 0  # scripts that this machine was too late for at each attempt
        self.port = FIRST_PORT  # of the next script; a connection that lingers has its own
        for name, value in SETTINGS.items():  # one that this kernel does not have has no limit to be lifted
            subprocess.run(space.enter("sysctl", "-q", "-e", "-w", f"net.ipv4.{name}={value}"), check=True)

    def play(self, left: list[int], attempts: int) -> None:
        """These scripts, under one tracer, until each was played as it stands, or so often."""
        for attempt in range(attempts):
            apart_s = APART_S if attempt else 0.0
            with Tracer("--netns", str(self.space.holder.pid), "--all-holds", "--min", "3ms") as tracer:
                calls = [(index, self.port + n, n % PLAYERS * apart_s) for n, index in enumerate(left)]
                played = self.pool.starmap_async(play, calls, 1).get(PATIENCE * 10)
                tracer.stop()
            self.port += len(left)
            hooks = tracer.records("start")[0]["hooks"]
            hidden = list(range(unseen(tracer)))
            records = sorted(tracer.stalls() + tracer.records("hold"), key=lambda record: str(record["time"]))
            for index, one in zip(left, played):
                mine = [r for r in records if (own_end(r)["address"], far_end(r)["address"]) == (one.local, one.remote)]
                self.told[index] = Told(one, mine, tracer.closing(), hooks, hidden)
            self.owners.append((int(tracer.closing()["dropped"]["owners"]),
                                sum("pid" not in own_end(record) for record in records), len(records)))
            known = {(one.local, one.remote) for one in played}
            self.strangers += [r for r in records if (own_end(r)["address"], far_end(r)["address"]) not in known]
            left = [index for index in left if not as_it_stands(index, self.told[index].played)]
            if not left:
                break
        self.late += len(left)

    def take(self, index: int) -> Told:
        """Who asks for it again has it played again."""
        if index not in self.told:
            self.play([index], 1)
        return self.told.pop(index)


def as_it_stands(index: int, played: peer.Played) -> bool:
    return not played.departed and played.late_ms <= (EXACT_LATE_MS if SCRIPTS[index].heads["exact"] else LATE_MS)


@pytest.fixture(scope="session")
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """All scripts that were chosen have been played."""
    if IN_GUEST:
        subprocess.run(["modprobe", "tun"], capture_output=True)
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        pytest.skip(f"/dev/net/tun: {errno.errorcode[error.errno or 0]}: this kernel has no TUN devices")
    context = multiprocessing.get_context("fork")
    with Namespace() as space, context.Pool(PLAYERS, enter, (space.holder.pid, context.Value("i", 0))) as pool:
        made = Stage(space, pool)
        chosen: list[Any] = [item for item in request.session.items if "index" in getattr(item, "fixturenames", ())]
        made.play([item.callspec.params["index"] for item in chosen], ATTEMPTS)
        yield made


def words(record: Record) -> set[str]:
    """All that a record says in a word."""
    keys = ("type", "cause", "side", "evidence", "pattern", "reason", "release")
    own = own_end(record)
    parts = (record, own.get("hold", {}), own.get("pending_ack", {}))
    return {part[key] for part in parts for key in keys if key in part}


def differences(played: peer.Played, records: list[Record], exact_us: int) -> Iterator[str]:
    """Where what was told is not what the script has."""
    if len(records) != len(played.waits):
        yield f"{len(records)} told, {len(played.waits)} in the script"
    for (wanted, least_us, most_us), record in zip(played.waits, records):
        if missing := [word for word in wanted if word not in words(record)]:
            yield f"not told: {' '.join(missing)}"
        if not least_us - exact_us <= record["duration_us"] <= most_us + exact_us:
            yield f"told {record['duration_us']} us, played {least_us} to {most_us} us"


def named(index: int, script: peer.Script) -> Any:
    """Of a script that an emulated machine can play, one end and family are enough in most guests."""
    marks = [] if script.heads["exact"] else [pytest.mark.guest]
    if (script.role, script.family) not in (("client", 4), ("server", 6)):
        marks.append(pytest.mark.once)
    return pytest.param(index, id=f"{script.name}-{script.role}-ipv{script.family}", marks=marks)


@pytest.mark.parametrize("index", [named(index, script) for index, script in enumerate(SCRIPTS)])
def test_it_is_told_as_the_script_has_it(index: int, stage: Stage, request: pytest.FixtureRequest) -> None:
    script = SCRIPTS[index]
    played, records, closing, hooks, hidden = stage.take(index)
    where, _, why = script.heads["xfail"].partition(" ")
    if {"all", hooks} & set(where.split(",")):
        request.applymarker(pytest.mark.xfail(reason=why, raises=pytest.fail.Exception, strict=True))
    told = "\n".join(f"told: {' '.join(sorted(words(record)))}, {record['duration_us']} us" for record in records)
    shown = "\n".join(["", *played.log, told])
    late = f"the machine was {played.late_ms:.1f} ms late, at each of {ATTEMPTS} attempts"
    if IN_GUEST and played.late_ms > LATE_MS:
        pytest.skip(late)
    if played.departed:
        raise RuntimeError(f"this kernel departs from the script: {played.departed}{shown}")
    if not as_it_stands(index, played):
        if stage.late * 100 > len(SCRIPTS):  # it shows next to nothing of what it is to show
            raise RuntimeError(late)
        pytest.skip(late)
    if script.heads["stalls"]:
        records = [record for record in records if record["type"] == "stall"]
    exact_us = JIFFY_US if script.heads["jiffy"] and hooks == "tracepoint" and not IN_GUEST else EXACT_US
    wrong = "; ".join(differences(played, records, exact_us))
    receivers = sum("receiver" in wanted for wanted, *_ in played.waits)
    # the receiver's end alone tells no stall whose timer the machine hid, and no more are missing than it says
    if 0 < len(played.waits) - len(records) <= min(receivers, len(hidden)):
        del hidden[:len(played.waits) - len(records)]
    elif wrong:
        pytest.fail(f"{wrong}; unseen {closing.get('unseen', 0)}{shown}", pytrace=False)
    # owners are those of all scripts together: test_an_end_without_its_process_is_counted
    assert not {where for where in dropped(closing) if where != "owners"}, closing["dropped"]


def test_an_end_without_its_process_is_counted(stage: Stage) -> None:
    """A script may have closed its socket before anybody looked for the owner: few have, where the machine is busy."""
    counted, nameless, told = map(sum, zip(*stage.owners))
    assert nameless <= counted <= told // 50, stage.owners


def test_nothing_is_told_of_anybody_else(stage: Stage) -> None:
    # one of those is a known fault
    strangers = [r for r in stage.strangers if not far_end(r)["address"].endswith(":0")]
    assert not strangers


def test_the_documented_script_is_one_of_them() -> None:
    example = (ROOT / "CONTRIBUTING.md").read_text().split("```packets\n")[1].split("```")[0]
    assert any(example in page for page in PAGES)
