#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Replies of which a segment goes out and the tail is held: reply_tail.py [--loss-probes] ROUNDS, in a network
namespace of its own.

The route to the reader is narrow, so two of the writer's segments are less than one of those that the reader counts
on: it keeps their ACK pending. Loss probes, which take the tail along before that ACK comes, are off unless asked for.
Waits for a line; prints as JSON how long each reply took to be all there, in us, and how many loss probes the kernel
counts (TcpExtTCPLossProbes).
"""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

SIZES = (100, 400)
NARROW = ("ip", "route", "replace", "table", "local", "local", "127.0.0.1", "dev", "lo", "mtu", "lock", "300", "advmss",
          "1400")


def main() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(NARROW, check=True)
    Path("/proc/sys/net/ipv4/tcp_early_retrans").write_text("3" if sys.argv[1] == "--loss-probes" else "0")
    took = []
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as writer:
        writer.bind(("127.0.0.2", 0))
        writer.connect(listener.getsockname())
        reader = listener.accept()[0]
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, sum(SIZES))
        print("ready", flush=True)
        sys.stdin.readline()
        for _ in range(int(sys.argv[-1])):
            reader.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)  # interactive, as who writes too
            began = time.monotonic()
            for size in SIZES:
                writer.sendall(bytes(size))
            select.select([reader], [], [])  # till the whole reply is there
            took.append(round((time.monotonic() - began) * 1e6))
            assert len(reader.recv(sum(SIZES))) == sum(SIZES)
            reader.sendall(b"r")
            assert writer.recv(1) == b"r"
    names, values = [line.split() for line in Path("/proc/net/netstat").read_text().splitlines()
                     if line.startswith("TcpExt:")]
    json.dump({"took": took, "loss_probes": int(values[names.index("TCPLossProbes")])}, sys.stdout)


if __name__ == "__main__":
    main()
