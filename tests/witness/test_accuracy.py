# SPDX-License-Identifier: GPL-2.0
"""The page of docs/accuracy.md says of the scores what they are, and no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import accuracy
import accuracy_page
import pytest


def lab(part: str, name: str, wire: int, missed: int = 0, false: int = 0, **more: Any) -> dict[str, Any]:
    matched = wire - missed
    return {"part": part, "lab": name, "traced": part, "wire": wire, "reported": matched + false, "matched": matched,
            "doubtful": 0, "missed": ["nagle_delayed_ack of 40.1 ms"] * missed,
            "false": ["cork_ceiling of 200.0 ms"] * false, "errors_us": [10.0, 20.0, 1500.0][:matched], **more}


def scores(kernel: str, hooks: str, *labs: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kernel": kernel, "release": "6.1.0-9-test", "hooks": hooks, "commit": "abc1234", "dirty": False,
            "date": "2026-01-02", "choice": accuracy_page.names_of(accuracy.CHOICE), "complete": True, "why_not": "",
            "labs": list(labs), "not_played": [], "lost": {"recursion": 7},
            "limits": {"late": "1 to 2 ms", "minimum": "3 ms", "tolerance": "4 ms"}, **more}


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes the page of some scores and returns its text."""
    monkeypatch.setattr(accuracy_page, "SCORES", tmp_path)
    monkeypatch.setattr(accuracy_page, "PAGE", tmp_path / "accuracy.md")
    monkeypatch.setattr(accuracy_page, "ROOT", tmp_path)

    def write(*some: dict[str, Any]) -> str:
        for one in some:
            (tmp_path / f"{one['kernel']}-{one['hooks']}.json").write_text(json.dumps(one))
        accuracy_page.write_page(accuracy.CHOICE)
        return (tmp_path / "accuracy.md").read_text()

    return write


def cells(text: str, heading: str, kernel: str) -> list[str]:
    """The row of a kernel in the first table below a heading; a heading "" is the page's begin."""
    below = text.split(f"## {heading}\n", 1)[1] if heading else text
    line = next(line for line in below.splitlines() if line.startswith(f"| {kernel} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_each_part_has_its_own_counts_and_the_first_table_all_of_them(page: Any) -> None:
    text = page(scores("6.1", "kprobe", lab("both", "echo", 0), lab("both", "bulk", 8, missed=2),
                       lab("receiver", "bulk", 2, false=1)))
    assert cells(text, accuracy_page.PARTS["both"], "6.1")[2:-1] == [
        "8", "6", "2", "0", "0", "0.02 ms, 1.50 ms", "0.7500", "1"]
    assert cells(text, accuracy_page.PARTS["receiver"], "6.1")[2:-1] == [
        "2", "3", "0", "1", "0", "0.01 ms, 0.02 ms", "1", "0.6666"]
    whole = cells(text, "", "6.1")
    assert whole[1:5] == ["6.1.0-9-test", "kprobe", "3", "10"]
    assert whole[-4:] == ["7", "-", "`abc1234`", "2026-01-02"]
    assert cells(page(scores("6.1", "kprobe", lab("both", "echo", 3), cpu=0.42)), "", "6.1")[-3] == "42%"


def test_one_wrong_in_many_is_not_rounded_away() -> None:
    assert accuracy_page.share(10**6, 1) == "0.9999"
    assert accuracy_page.share(5, 0) == "1"
    assert accuracy_page.share(0, 0) == "-"
    assert accuracy_page.share(0, 3) == "0.0000"


def test_what_was_wrong_is_told_one_by_one(page: Any) -> None:
    text = page(scores("6.1", "function", lab("both", "echo", 3, missed=2), lab("both", "bulk", 3),
                       lab("mix", "mix", 3, missed=1, false=1)))
    told = text.split("## What was wrong, one by one\n")[1].split("\n## ")[0]
    assert "`echo`: missed: nagle_delayed_ack of 40.1 ms; nagle_delayed_ack of 40.1 ms\n" in told
    assert "`mix`: missed: nagle_delayed_ack of 40.1 ms, false: cork_ceiling of 200.0 ms\n" in told
    assert "bulk" not in told
    assert "Nothing was missed" not in text


def test_what_could_not_be_had_was_cut_off_or_changed_is_said(page: Any) -> None:
    text = page(scores("6.1", "function", lab("both", "echo", 3), complete=False, dirty=True),
                scores("6.12", "tracepoint", why_not="the kernel says no"),
                scores("6.12", "kprobe", lab("both", "echo", 3), choice={"both ends": ["echo"]}),
                {"kernel": "7", "hooks": "kprobe", "why_not": "kernel 7 cannot be had: no mirror"})
    whole = cells(text, "", "6.1")
    assert whole[3] == "1, cut off" and whole[-2] == "`abc1234`+"
    assert "- 6.12 by tracepoint hooks: the kernel says no.\n" in text
    assert "- 6.12 by kprobe hooks: it was measured with other labs than today's; measure it again.\n" in text
    assert "- 7 by kprobe hooks: kernel 7 cannot be had: no mirror.\n" in text
    assert "\n| 6.12 |" not in text and "\n| 7 |" not in text


def test_what_was_not_played_is_told_with_its_reason(page: Any) -> None:
    left = [{"lab": name, "why": "no netem"} for name in ("loss", "long-rtt")]
    text = page(scores("6.1", "function", lab("both", "echo", 3), not_played=left),
                scores("6.1", "kprobe", lab("both", "echo", 3), not_played=left),
                scores("7", "kprobe", lab("both", "echo", 3), not_played=left[:1] + [{"lab": "mix", "why": "failed"}]))
    assert ("- 6.1 function, 6.1 kprobe: no netem (`loss`, `long-rtt`)\n- 7 kprobe: no netem (`loss`)\n"
            "- 7 kprobe: failed (`mix`)\n") in text


def test_what_the_native_kernel_hid_is_said(page: Any) -> None:
    text = page(scores("native", "tracepoint", lab("both", "echo", 3, missed=3), unseen=2))
    assert "hid 2 timers" in text
    assert "The native kernel" not in page(scores("native", "tracepoint", lab("both", "echo", 3), unseen=0))


def test_kernels_are_chosen_by_name_and_rt_is_all_that_end_so() -> None:
    assert accuracy.chosen([]) == list(accuracy_page.KERNELS)
    assert accuracy.chosen(["rt", "native"]) == ["native", "6.1-rt", "6.12-rt"]
    assert accuracy.chosen(["6.1"]) == ["6.1"]
    with pytest.raises(ValueError, match=r"kernel 4\.4: no such kernel; give .*6\.12-rt"):
        accuracy.chosen(["4.4"])


def test_the_published_page_has_the_labs_that_are_played() -> None:
    assert accuracy_page.labs_table(accuracy.CHOICE) in accuracy_page.PAGE.read_text()
