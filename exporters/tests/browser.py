# SPDX-License-Identifier: GPL-2.0
"""A real browser without a window, to see what pages do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

#: `make test-browser` installs chromium; the other parts leave these tests out.
needs_chromium = pytest.mark.browser
#: nothing waits longer
PATIENCE = 60.0


def dump(page: Path, tmp_path: Path, *flags: str) -> str:
    """The document as the browser has it, after its scripts."""
    profile = tmp_path / "profile"
    shutil.rmtree(profile, ignore_errors=True)
    done = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         f"--user-data-dir={profile}", "--virtual-time-budget=2000", *flags, "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_script(page: Path, tmp_path: Path, script: str, *flags: str) -> Any:
    """Runs a script in a copy of the page; what it returns. The report forbids scripts; the copy does not."""
    text = page.read_text()
    text = re.sub(r"<meta http-equiv=[^>]*>", "", text)
    code = ("const told = document.documentElement, fail = e => told.setAttribute('data-error', e.message || e.reason);"
            "window.addEventListener('error', fail); window.addEventListener('unhandledrejection', fail);"
            f"(async function () {{ {script} }})().then(r => told.setAttribute('data-result', JSON.stringify(r)));")
    tag = f"<script><![CDATA[{code}]]></script>" if page.suffix == ".svg" else f"<script>{code}</script>"
    end = "</svg>" if page.suffix == ".svg" else "</body>"
    before, _, after = text.rpartition(end)
    copy = tmp_path / f"scripted{page.suffix}"
    copy.write_text(before + tag + end + after)
    dumped = dump(copy, tmp_path, *flags)
    error = re.search(r'data-error="([^"]*)"', dumped)
    assert not error, unescape(error[1]) if error else ""
    result = re.search(r'data-result="([^"]*)"', dumped)
    assert result, dumped[:2000]
    return json.loads(unescape(result[1]))
