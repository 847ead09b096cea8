# SPDX-License-Identifier: GPL-2.0
"""The gadget in guests, whose kernels hide no timer and have what it needs (6.3 and newer), and what Inspektor Gadget
needs for names of pods.
"""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import harness
import pytest
from gadgets import ROOT

pytestmark = pytest.mark.skipif(harness.IN_GUEST, reason="it is a guest that cannot be had in a guest")

#: tests/guests/guest.py: the kernel cannot be had.
UNAVAILABLE = 77
#: ig takes a minute and more to start there, each time.
TESTS = {
    "test_each_stall_comes_out_with_process_connection_duration_and_reason": "test_gadget.py",
    "test_each_stall_of_a_container_has_its_pods_name": "test_pods.py",
}
#: In s.
PATIENCE = 900.0

Cases = dict[str, ElementTree.Element]


@pytest.fixture(scope="module", params=["6.12", "7"])
def told(request: pytest.FixtureRequest, archive: Path) -> tuple[Cases, str]:
    """What a guest with this kernel tells of each test, and all it said."""
    results = ROOT / "build" / "results" / f"gadget-{request.param}"
    done = subprocess.run(
        ["/usr/bin/python3", "tests/guests/guest.py", "--kernel", request.param, "--results", results, "--timeout",
         f"{PATIENCE:.0f}", "--", "python3", "-m", "pytest",
         *(f"tests/gadget/{file}::{name}" for name, file in TESTS.items()), f"--junitxml={results}/results.xml"],
        cwd=ROOT, capture_output=True, text=True)
    if done.returncode == UNAVAILABLE and not (results / "exit-code").exists():
        pytest.skip(done.stderr.strip().splitlines()[-1])
    said = done.stdout + done.stderr
    assert (results / "exit-code").exists(), said[-4000:]
    return {str(case.get("name")): case for case in ElementTree.parse(results / "results.xml").iter("testcase")}, said


@pytest.mark.parametrize("test", TESTS)
def test_in_a_guest(test: str, told: tuple[Cases, str]) -> None:
    cases, said = told
    assert test in cases, said[-4000:]
    for result in cases[test]:
        if result.tag == "skipped":
            pytest.skip(str(result.get("message")))
        assert result.tag not in ("failure", "error"), f"{result.text}\n{said[-4000:]}"
