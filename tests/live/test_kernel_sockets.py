# SPDX-License-Identifier: GPL-2.0
"""Sockets that the kernel itself uses are told as its own, with the remedy of the client: a CIFS mount, and a disk by
NVMe over TCP, through a proxy on this host."""

from __future__ import annotations

import contextlib
import json
import mmap
import multiprocessing
import os
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import IN_GUEST, NAGLETRACE, Tracer
from processes import free_port, listens, wait_until

pytestmark = [pytest.mark.guest,
              pytest.mark.skipif(not IN_GUEST, reason="takes cifs.ko and nvme-tcp.ko, which the guests have")]

PAIRS = 10
NAMES = ("one", "two")
#: The second request of a pair follows the first after this time, in seconds, and the answer is far.
APART, AWAY = 0.005, 0.1
KERNEL = tuple(map(int, os.uname().release.split(".")[:2]))


class Proxy:
    """Stands between the kernel's client and its server. It is slow to pass requests on, and delays their ACKs, or
    passes answers on in two parts with Nagle's help, once it is told to."""

    def __init__(self, port: int) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.server = port
        self.wait, self.first = 0.0, 0
        #: when requests came
        self.came: list[float] = []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self.server))
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self.answers, args=(server, client), daemon=True).start()
                threading.Thread(target=self.requests, args=(client, server), daemon=True).start()

    def requests(self, client: socket.socket, server: socket.socket) -> None:
        """None waits for another."""
        with contextlib.suppress(OSError):
            while part := client.recv(1 << 20):
                self.came.append(time.monotonic())
                if not self.wait:
                    server.sendall(part)
                    continue
                timer = threading.Timer(self.wait, server.sendall, (part,))
                timer.daemon = True
                timer.start()

    def answers(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := server.recv(1 << 20):
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, not self.first)
                if self.first:
                    client.sendall(part[:self.first])
                client.sendall(part[self.first:])
                if self.wait:  # until its timer has sent one ACK
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)


# ---- CIFS ----


def serve_files(directory: str, port: int) -> None:
    from impacket.smbserver import SimpleSMBServer

    server = SimpleSMBServer("127.0.0.1", port)
    server.addShare("files", directory)
    server.setSMB2Support(True)
    server.addCredential("reader", 0, "aad3b435b51404eeaad3b435b51404ee", "8846f7eaee8fb117ad06bdd830b7586c")
    server.start()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    directory = tmp_path_factory.mktemp("files")
    for name in NAMES:
        (directory / name).write_text(name)
    subprocess.run(["modprobe", "cifs"], check=True)
    port = free_port()
    server = multiprocessing.get_context("fork").Process(target=serve_files, args=(str(directory), port), daemon=True)
    server.start()
    wait_until("it listens", lambda: listens(port))
    yield Proxy(port)
    server.kill()
    server.join()


@contextlib.contextmanager
def mounted(directory: Path, port: int, *options: str) -> Iterator[Path]:
    place = directory / "mount"
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-i", "-t", "cifs", "//127.0.0.1/files", place, "-o",
                    ",".join(("ip=127.0.0.1", f"port={port}", "username=reader", "password=password", "vers=2.0",
                              "cache=none", "actimeo=0", *options))], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def waits(place: Path, proxy: Proxy, pairs: int = PAIRS) -> list[float]:
    """Plays pairs of requests of two threads; how long the second ones waited to leave, in ms."""
    proxy.wait = AWAY
    waited = []
    for _ in range(pairs):
        threads = [threading.Thread(target=os.stat, args=(place / name,)) for name in NAMES]
        before = len(proxy.came)
        threads[0].start()
        time.sleep(APART)
        asked = time.monotonic()
        threads[1].start()
        wait_until("both came", lambda: len(proxy.came) >= before + 2)  # noqa: B023
        waited.append((proxy.came[before + 1] - asked) * 1000)
        for thread in threads:
            thread.join()
    proxy.wait = 0.0
    return waited


def test_a_mount_is_told_as_the_kernels_and_its_option_helps(files: Proxy, tmp_path: Path) -> None:
    with mounted(tmp_path, files.port) as place:
        waits(place, files, 1)  # the first takes longer everywhere
        with Tracer("-P", str(files.port)) as tracer:
            waited = waits(place, files)
            tracer.stop()
        with subprocess.Popen([NAGLETRACE, "fix", "--nodelay", "-p", str(os.getpid()), "-P", str(files.port), "--json",
                               "--for", "2s", "-y"], stdout=subprocess.PIPE, text=True) as fix:
            try:
                wait_until("fix ends", lambda: bool(waits(place, files, 1)) and fix.poll() is not None)
                told = [json.loads(line) for line in fix.stdout or ()]
            finally:
                fix.kill()
    stalls = tracer.stalls()
    felt = sum(wait > 30 for wait in waited)
    assert felt >= PAIRS // 2 and felt <= len(stalls) <= PAIRS, (waited, stalls)
    for stall in stalls:
        assert (stall["cause"], stall["side"]) == ("nagle_delayed_ack", "sender")
        assert stall["sender"]["comm"] == "kernel (cifsd)" and "pid" not in stall["sender"]
    assert {c["fix"] for c in tracer.closing()["connections"]} == {
        "mount it with the option tcpnodelay, from Linux 5.11 on"}
    assert fix.returncode == 0
    before = next(line["before"] for line in told if "before" in line)
    assert before["kernel_stalls"] == before["stalls"] > 0, told
    if KERNEL < (5, 11):
        return
    with mounted(tmp_path, files.port, "tcpnodelay") as place:
        with Tracer("-P", str(files.port)) as tracer:
            waited = waits(place, files)
            tracer.stop()
    assert statistics.median(waited) < 15 and not tracer.stalls()


# ---- NVMe over TCP ----


def write(path: Path, value: object) -> None:
    path.write_text(str(value))


@contextlib.contextmanager
def disk(directory: Path) -> Iterator[tuple[Path, Proxy]]:
    """A disk of this kernel, which serves it to itself through a proxy."""
    port = free_port()
    image = directory / "image"
    image.write_bytes(bytes(1 << 20))
    for module in ("nvmet-tcp", "nvme-tcp"):
        subprocess.run(["modprobe", module], check=True)
    top = Path("/sys/kernel/config/nvmet")
    if not top.exists():
        subprocess.run(["mount", "-t", "configfs", "configfs", "/sys/kernel/config"], check=True)
    subsystem, entry = top / "subsystems" / "nagletrace", top / "ports" / "1"
    space = subsystem / "namespaces" / "1"
    space.mkdir(parents=True)
    write(subsystem / "attr_allow_any_host", 1)
    write(space / "device_path", image)
    write(space / "buffered_io", 1)  # tmpfs takes no direct reads before Linux 6.6
    write(space / "enable", 1)
    entry.mkdir()
    for name, value in (("adrfam", "ipv4"), ("trtype", "tcp"), ("traddr", "127.0.0.1"), ("trsvcid", port)):
        write(entry / f"addr_{name}", value)
    (entry / "subsystems" / "nagletrace").symlink_to(subsystem)
    proxy = Proxy(port)
    write(Path("/dev/nvme-fabrics"), f"transport=tcp,traddr=127.0.0.1,trsvcid={proxy.port},nqn=nagletrace,"
                                     "nr_io_queues=1,queue_size=16")
    device = Path("/dev/nvme0n1")
    try:
        wait_until("the device is there", device.exists)
        yield device, proxy
    finally:
        write(Path("/sys/class/nvme/nvme0/delete_controller"), 1)


@pytest.mark.skipif(KERNEL < (5, 13), reason="no program can ask for a module's name before Linux 5.13")
def test_a_disk_whose_acks_are_late_has_the_modules_name(tmp_path: Path) -> None:
    with disk(tmp_path) as (device, proxy), mmap.mmap(-1, 4096) as page:
        proxy.first = 10
        with Tracer("-P", str(proxy.port)) as tracer:
            reads = os.open(device, os.O_RDONLY | os.O_DIRECT)
            took = []
            for _ in range(4 * PAIRS):
                begun = time.monotonic()
                assert os.preadv(reads, [page], 0) == len(page)
                took.append((time.monotonic() - begun) * 1000)
            os.close(reads)
            tracer.stop()
    mine = [stall for stall in tracer.stalls() if stall["sender"].get("pid") == os.getpid()]
    felt = sum(ms > 35 for ms in took)
    assert felt >= PAIRS and abs(len(mine) - felt) <= 2, (took, tracer.stalls())
    for stall in mine:
        assert stall["receiver"]["comm"] == "kernel (nvme_tcp)" and "pid" not in stall["receiver"]
