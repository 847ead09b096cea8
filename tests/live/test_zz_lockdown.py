# SPDX-License-Identifier: GPL-2.0
"""The last test of a guest: lockdown cannot be lifted again before the next boot."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import IN_GUEST, run
from test_command import assert_one_line


@pytest.mark.guest
@pytest.mark.once
@pytest.mark.skipif(not IN_GUEST, reason="would lock this machine down until its next boot; runs in the guests")
def test_lockdown_confidentiality_is_told() -> None:
    path = Path("/sys/kernel/security/lockdown")
    if not path.exists():
        pytest.skip("this kernel has no lockdown")
    path.write_text("confidentiality")
    assert_one_line(run("-d", "1s"), 3, "lockdown", "confidentiality", "lockdown=integrity")
    checked = run("check")
    assert checked.returncode == 3 and "lockdown=integrity" in checked.stderr and "would be used" not in checked.stdout
