# SPDX-License-Identifier: GPL-2.0
"""docs/accuracy.md, of the scores that accuracy.py has left in build/accuracy."""

from __future__ import annotations

import contextlib
import json
import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCORES = ROOT / "build" / "accuracy"
PAGE = ROOT / "docs" / "accuracy.md"

HOOKS = ("function", "kprobe", "tracepoint")
NATIVE = "native"
#: In the page's order; those of guests are in tests/guests/kernels.py.
KERNELS = (NATIVE, "5.10", "6.1", "6.1-rt", "6.12", "6.12-rt", "7")
Lab = tuple[str, ...]
#: The labs, by what is traced.
Choice = dict[str, list[Lab]]
#: The parts of the page: their names in the scores, and what each is.
PARTS = {
    "both": "Both ends traced",
    "sender": "Only the sender's end traced",
    "receiver": "Only the receiver's end traced",
    "mix": "The mixture, both ends traced",
}

TEXT = """\
# How right it is

`make accuracy` writes this page. Each row is one kernel by one kind of hooks. The column *commit* names the measured
state of this repository (`+` after it: with uncommitted changes).

{overview}

{why_not}

## How it is measured

`nagle-lab` plays both ends of TCP connections whose stalls are known in kind but not in time: programs that stall, the
same ones repaired, and traffic that only looks like a stall (bulk transfers, small windows, loss, slow links, one-way
streams). The choice is the same for every kernel, and stands [below](#the-labs):

- {count_both} labs with both ends traced, as where both programs are on one host
- {count_client} with only the client's end and {count_server} with only the server's end traced, as if the other
  program were on another host
- a mixture: eight connections at once with random sizes, pauses, options and repairs

Each plays while tcpdump captures at both ends and nagletrace traces. The code is `tests/accuracy.py`.

Two witnesses show what really happened. They share no code with nagletrace and know nothing of the kernel's state
(`tests/witness`):

- the **wire**, where a small segment leaves right after a late ACK
- the **application's own log**, which says when it wrote those bytes and which socket options it set

A wait is a stall only where both agree: the bytes were there before the ACK came, nothing but Nagle's algorithm (or a
forgotten cork) held them, and they left when the ACK came. `make accuracy` then looks for each stall of the witnesses
among nagletrace's records: the same cause, the same sender and receiver, the same moment ({tolerance};
100 ms more where one end alone is traced, which learns of a stall a round trip later).

| column | meaning |
|---|---|
| stalls | stalls by the witnesses, without the doubtful ones |
| reported | stalls that nagletrace reported |
| missed | stalls of the witnesses that nagletrace did not report |
| false | reported stalls that are none of the witnesses', certain or doubtful: false positives |
| doubtful | the witnesses cannot tell: see below |
| error | of the duration, against the wire: the median and the largest; by the receiver's end alone it is the pending \
ACK's |
| recall | the share of the stalls that nagletrace reported: 1 - missed / stalls |
| precision | the share of the reports that was right: 1 - false / (stalls found + false) |
| skipped | runs of a program that the kernel left out because one was under way on that CPU; mostly made up for, see \
`recursion` in [design.md](design.md#how-dropped-records-are-counted) |
| CPU | how much the emulator had of the one CPU that it can use |

A wait is **doubtful** when it lies so near to a limit that the clocks of a machine decide it either way. nagletrace may
report it or not; neither counts. These are doubtful:

- an ACK that was pending for about the 30 ms from which one counts as late ({late})
- bytes held for about the 1 ms from which nagletrace reports a hold ({minimum})
- bytes that the application wrote, or an option that it set, as the ACK came in
- bytes that left later after the ACK than at once, for example because of pacing
- for the receiver's end alone, an answer so much later than a round trip that it may be chance

The witnesses decide that before they look at nagletrace's reports.

**Guests are slow and noisy.** All kernels but this machine's run in an emulated machine, ten to twenty times slower.

- A guest may stand still for tens of milliseconds between two instructions, and then makes up for the ticks that it
  missed: a delayed ACK of 40 ms ends after 8, a segment leaves long after it could. So more is doubtful there.
- The errors of durations are mostly the guest's: the kernel reads tcpdump's clock and nagletrace's at two places of its
  code, between which the guest may stand still.
- Use the guests' rows to see whether nagletrace *finds* a stall, which depends on the kernel, and the native row to see
  how exact its *duration* is.
- Where other work kept the CPU from the guest (column *CPU*), its threads waited for each other. Then the wire shows
  late ACKs that TCP did not delay. nagletrace does not call them a stall, and they count as missed.
{native_note}
## {both}

Stalls here are `seen`: nagletrace observes both the hold at the sender and the late ACK at the receiver.

{table_both}

## {sender}

Stalls here are `inferred` from the ACK's time, and the smallest round trip.

{table_sender}

## {receiver}

Stalls here are `inferred` from the ACK that our own timer sent, and the answer to it.

{table_receiver}

## {mix}

{table_mix}

## What was wrong, one by one

{wrong}

## What was not played

{not_played}

## The labs

`nagle-lab LAB --over veth …`; `nagle-lab --list` describes them.

{labs}
"""

Measured = dict[str, Any]


def row(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def head(*cells: str) -> list[str]:
    return [row(*cells), "|" + "---|" * len(cells)]


def names_of(choice: Choice) -> dict[str, list[str]]:
    return {traced: [" ".join(lab) for lab in labs] for traced, labs in choice.items()}


def load(choice: Choice) -> list[Measured]:
    """All scores that there are, in the page's order; those of other labs than today's are none."""
    found = []
    for kernel in KERNELS:
        for kind in HOOKS:
            with contextlib.suppress(FileNotFoundError):
                one = json.loads((SCORES / f"{kernel}-{kind}.json").read_text())
                if not one["why_not"] and one["choice"] != names_of(choice):
                    one["why_not"] = "it was measured with other labs than today's; measure it again"
                found.append(one)
    return found


def name_of(one: Measured) -> str:
    return f"{'.'.join(one['release'].split('.')[:2])}, native" if one["kernel"] == NATIVE else one["kernel"]


def commit_of(one: Measured) -> str:
    return f"`{one['commit']}`{'+' if one['dirty'] else ''}"


def share(right: int, wrong: int) -> str:
    """Never rounded up to the whole."""
    if not wrong:
        return "1" if right else "-"
    return f"{int(10000 * right / (right + wrong)) / 10000:.4f}"


def milliseconds(us: float) -> str:
    return f"{us / 1000:.2f} ms" if us < 100_000 else f"{us / 1000:.0f} ms"


def summed(labs: list[dict[str, Any]]) -> list[str]:
    """The cells of several labs together."""
    def total(key: str) -> int:
        return sum(len(lab[key]) if isinstance(lab[key], list) else lab[key] for lab in labs)

    errors = [error for lab in labs for error in lab["errors_us"]]
    error = f"{milliseconds(statistics.median(errors))}, {milliseconds(max(errors))}" if errors else "-"
    cells = [total(key) for key in ("wire", "reported", "missed", "false", "doubtful")]
    return [*map(str, cells), error, share(total("matched"), total("missed")), share(total("matched"), total("false"))]


COLUMNS = ("stalls", "reported", "missed", "false", "doubtful", "error: median, largest", "recall", "precision")


def part_table(measured: list[Measured], part: str) -> str:
    lines = head("kernel", "hooks", *COLUMNS, "commit")
    for one in measured:
        labs = [lab for lab in one["labs"] if lab["part"] == part]
        if labs:
            lines.append(row(name_of(one), one["hooks"], *summed(labs), commit_of(one)))
    return "\n".join(lines)


def overview(measured: list[Measured]) -> str:
    lines = head("kernel", "release", "hooks", "labs", *COLUMNS, "skipped", "CPU", "commit", "date")
    for one in measured:
        short = "" if one["complete"] else ", cut off"
        labs = len({(lab["traced"], lab["lab"]) for lab in one["labs"]})
        lines.append(row(name_of(one), one["release"], one["hooks"], f"{labs}{short}", *summed(one["labs"]),
                         one["lost"].get("recursion", 0), f"{one['cpu']:.0%}" if "cpu" in one else "-",
                         commit_of(one), one["date"]))
    return "\n".join(lines)


def reasons(found: list[Measured]) -> str:
    by_reason: dict[str, list[str]] = {}
    for one in found:
        if one["why_not"]:
            name = name_of(one) if "release" in one else one["kernel"]
            by_reason.setdefault(one["why_not"], []).append(f"{name} by {one['hooks']} hooks")
    if not by_reason:
        return "Nothing that was asked for could not be had."
    return "\n".join(["Not measured:", "", *(f"- {', '.join(who)}: {why}." for why, who in by_reason.items())])


def wrong_ones(measured: list[Measured]) -> str:
    lines = []
    for one in measured:
        for lab in one["labs"]:
            told = [f"{kind}: {'; '.join(lab[kind])}" for kind in ("missed", "false") if lab[kind]]
            if told:
                lines.append(f"- {name_of(one)}, {one['hooks']}, {PARTS[lab['part']].lower()}, `{lab['lab']}`: "
                             f"{', '.join(told)}")
    return "\n".join(lines) or "Nothing was missed, and nobody was accused wrongly."


def not_played(measured: list[Measured]) -> str:
    """By reason: which labs, by which kernels and hooks."""
    who: dict[str, dict[str, list[str]]] = {}
    for one in measured:
        for lab in one["not_played"]:
            who.setdefault(lab["why"], {}).setdefault(f"{name_of(one)} {one['hooks']}", []).append(f"`{lab['lab']}`")
    return "\n".join(f"- {', '.join(names)}: {why} ({', '.join(labs)})" for why, by_labs in who.items()
                     for labs, names in by_same(by_labs).items()) or "Every lab was played everywhere."


def by_same(labs: dict[str, list[str]]) -> dict[tuple[str, ...], list[str]]:
    """Who has the same labs."""
    who: dict[tuple[str, ...], list[str]] = {}
    for name, some in labs.items():
        who.setdefault(tuple(some), []).append(name)
    return who


def limits(measured: list[Measured], what: str) -> str:
    """How near to a limit is doubtful, as it was where it was measured."""
    told = {}
    for one in measured:
        where = "natively" if one["kernel"] == NATIVE else "in guests"
        told[where] = one["limits"][what]
    return ", ".join(f"{value} {where}" for where, value in told.items()) or "-"


def native_note(measured: list[Measured]) -> str:
    unseen = sum(one.get("unseen", 0) for one in measured if one["kernel"] == NATIVE)
    if not unseen:
        return ""
    return (f"\n**The native kernel** hid {unseen} timers of delayed ACKs from its BPF programs, by nagletrace's own "
            "count (`unseen`).\nA stall that such a timer ended still counts as missed where nagletrace did not "
            "report it.\n")


def labs_table(choice: Choice) -> str:
    lines = head("traced", "labs")
    for traced, names in names_of(choice).items():
        lines.append(row(traced, ", ".join(f"`{name}`" for name in names)))
    return "\n".join(lines)


def write_page(choice: Choice) -> None:
    found = load(choice)
    measured = [one for one in found if not one["why_not"]]
    count_both, count_client, count_server, _ = map(len, choice.values())
    PAGE.write_text(TEXT.format(
        overview=overview(measured), why_not=reasons(found), native_note=native_note(measured),
        count_both=count_both, count_client=count_client, count_server=count_server,
        tolerance=limits(measured, "tolerance"), late=limits(measured, "late"), minimum=limits(measured, "minimum"),
        **PARTS, **{f"table_{part}": part_table(measured, part) for part in PARTS},
        wrong=wrong_ones(measured), not_played=not_played(measured), labs=labs_table(choice)))
    print(f"accuracy: wrote {PAGE.relative_to(ROOT)}", flush=True)
