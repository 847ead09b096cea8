# SPDX-License-Identifier: GPL-2.0
"""Runs a program in a terminal of its own. pyte keeps the screen as a terminal would show it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable

import pyte
from harness import PATIENCE
from processes import Ends, kill


def set_size(fd: int, columns: int, rows: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Screen(pyte.Screen):
    """Adds what ncurses uses of xterm and pyte 0.8 does not know: scrolling a region without a cursor, and repeating a
    character."""

    last = " "

    def draw(self, data: str) -> None:
        super().draw(data)
        self.last = data[-1:]

    def repeat(self, count: int = 1) -> None:
        self.draw(self.last * (count or 1))

    def scroll_up(self, count: int = 1) -> None:
        self._scroll(self.delete_lines, count)

    def scroll_down(self, count: int = 1) -> None:
        self._scroll(self.insert_lines, count)

    def _scroll(self, how: Callable[[int], None], count: int) -> None:
        row, column = self.cursor.y, self.cursor.x
        self.cursor.y = self.margins.top if self.margins else 0
        how(count or 1)
        self.cursor.y, self.cursor.x = row, column


class Stream(pyte.ByteStream):
    csi = {**pyte.ByteStream.csi, "S": "scroll_up", "T": "scroll_down", "b": "repeat"}
    events = pyte.ByteStream.events | {"scroll_up", "scroll_down", "repeat"}


class Terminal(Ends):
    """Runs a program until it or the block ends. `output` has all that it wrote; lines() returns the screen."""

    def __init__(self, *command: str, columns: int = 80, rows: int = 24, environment: dict[str, str] | None = None
                 ) -> None:
        self.screen = Screen(columns, rows)
        self.stream = Stream(self.screen)
        self.output = b""
        self.lock = threading.Lock()
        self.master, self.slave = os.openpty()
        set_size(self.master, columns, rows)
        self.state = termios.tcgetattr(self.slave)
        self.state_at_end: list[object] = []
        default = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        default.pop("NO_COLOR", None)
        self.process = subprocess.Popen(command, stdin=self.slave, stdout=self.slave, stderr=self.slave,
                                        start_new_session=True, preexec_fn=self._take_terminal,
                                        env={**default, **(environment or {})})
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    @staticmethod
    def _take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self.master, 65536):
                with self.lock:
                    self.output += data
                    self.stream.feed(data)

    def lines(self) -> list[str]:
        with self.lock:
            return [line.rstrip() for line in self.screen.display]

    def text(self) -> str:
        return "\n".join(self.lines())

    def until(self, seen: Callable[[str], bool], what: str = "") -> str:
        """Waits until the screen is so and the program has drawn it to its end. Returns the text of the screen."""
        end = time.monotonic() + PATIENCE
        while True:
            drawn = len(self.output)
            text = self.text()
            time.sleep(0.02)
            if len(self.output) == drawn and seen(text):
                return text
            assert time.monotonic() < end and self.process.poll() is None, f"{what!r} is not on the screen:\n{text}"

    def wait_for(self, text: str) -> str:
        return self.until(lambda screen: text in screen, text)

    def press(self, keys: str | bytes) -> None:
        os.write(self.master, keys.encode() if isinstance(keys, str) else keys)

    def resize(self, columns: int, rows: int) -> None:
        with self.lock:
            self.screen.resize(rows, columns)
            set_size(self.master, columns, rows)

    def reversed_line(self) -> str:
        """Returns the chosen line of the table: it is reversed, and neither the first nor the last of the screen."""
        with self.lock:
            for y in range(1, self.screen.lines - 1):
                if self.screen.buffer[y][0].reverse:
                    return str(self.screen.display[y].rstrip())
        return ""

    def is_restored(self) -> bool:
        """Returns whether the modes are what they were, the alternate screen is left, and the cursor is visible."""
        with self.lock:
            shown = self.output.rfind(b"\x1b[?25h") >= self.output.rfind(b"\x1b[?25l")
            left = self.output.count(b"\x1b[?1049h") == self.output.count(b"\x1b[?1049l")
        return shown and left and (self.state_at_end or termios.tcgetattr(self.slave)) == self.state

    def ended(self) -> int:
        """Waits for the end and for all output, and returns the exit code."""
        code = self.process.wait(PATIENCE)
        self.state_at_end = termios.tcgetattr(self.slave)
        os.close(self.slave)  # now the other end knows that nobody writes any more
        self.slave = -1
        self.reader.join(PATIENCE)
        return code

    def close(self) -> None:
        kill(self.process)
        for fd in (self.slave, self.master):
            with contextlib.suppress(OSError):  # closed already
                os.close(fd)
