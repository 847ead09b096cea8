# SPDX-License-Identifier: GPL-2.0
"""What is read out of a recording of strace's."""

from __future__ import annotations

from pathlib import Path

import calls

RECORDING = """\
17 1000.000100 setsockopt(3<TCP:[127.0.0.1:80]>, SOL_TCP, TCP_NODELAY, [1], 4) = 0 <0.000010>
17 1000.100000 accept4(3<TCP:[127.0.0.1:80]>,  <unfinished ...>
18 1000.200000 setsockopt(5<TCP:[77]>, SOL_TCP, TCP_CORK, [1], 4) = 0 <0.000010>
18 1000.300000 connect(5<TCP:[77]>, {sa_family=AF_INET, sin_port=htons(80)}, 16) = 0 <0.000100>
17 1000.300200 <... accept4 resumed>{sa_family=AF_INET}, [16], 0) = 4<TCP:[127.0.0.1:80->127.0.0.1:5]> <0.200200>
18 1000.400000 sendto(5<TCP:[127.0.0.1:5->127.0.0.1:80]>, ""..., 6, MSG_MORE, NULL, 0) = 6 <0.000020>
18 1000.500000 writev(5<TCP:[127.0.0.1:5->127.0.0.1:80]>, [...], 2 <unfinished ...>
17 1000.500500 write(4<TCP:[127.0.0.1:80->127.0.0.1:5]>, ""..., 9) = -1 EAGAIN (Resource unavailable) <0.000010>
18 1000.501000 <... writev resumed>) = 7 <0.001000>
17 1000.600000 splice(9<pipe:[1]>, NULL, 4<TCP:[127.0.0.1:80->127.0.0.1:5]>, NULL, 99, 0) = 30 <0.000010>
17 1000.700000 write(8</tmp/log>, ""..., 30) = 30 <0.000010>
17 1000.800000 +++ exited with 0 +++
"""
MS = 1_000_000
CLIENT, SERVER = "127.0.0.1:5", "127.0.0.1:80"


def test_writes_and_options_are_those_of_each_direction(tmp_path: Path) -> None:
    recording = tmp_path / "calls"
    recording.write_text(RECORDING)
    logs = calls.logs_of(calls.read(recording))
    assert set(logs) == {(CLIENT, SERVER), (SERVER, CLIENT)}
    client, server = logs[CLIENT, SERVER], logs[SERVER, CLIENT]
    assert [(w.offset, w.length, w.more) for w in client.writes] == [(0, 6, True), (6, 7, False)]
    assert (client.writes[1].start, client.writes[1].end) == (1_000_500 * MS, 1_000_501 * MS)
    assert [(w.offset, w.length) for w in server.writes] == [(0, 30)]
    assert client.option_at("TCP_CORK", client.writes[0].end) == 1
    assert server.option_at("TCP_NODELAY", server.writes[0].start) == 1
