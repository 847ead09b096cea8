# SPDX-License-Identifier: GPL-2.0
"""`nagletrace fix --keep`, `--pin` and `--undo`: a remedy for programs that nobody can change.

The witness is the clock of the program, or of its client.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import Daemon
from harness import IN_GUEST, NAGLETRACE, PATIENCE, STALLED_US, Lab, Lines, run, stalled_rounds
from pods import Place
from processes import Ends, status

pytestmark = [pytest.mark.guest]

PINS = Path("/sys/fs/bpf")
#: bpf_setsockopt() of a program on a cgroup takes TCP_NODELAY from here on
KERNEL = tuple(int(part) for part in os.uname().release.split(".")[:2])
needs_nodelay = pytest.mark.skipif(KERNEL < (6, 1), reason="this kernel refuses TCP_NODELAY, as another test shows")

#: A server of Python's library, whose answers are two writes, as docs/what-to-do.md has it.
SERVER = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def place() -> Iterator[Place]:
    with Place(f"/nagletrace-keep-{os.getpid()}") as place:
        if not place.version_2:
            pytest.skip("no cgroup v2 here")
        yield place


@pytest.fixture
def pins() -> Iterator[None]:
    """Pins need a BPF file system."""
    mounts = Path("/proc/self/mounts").read_text()
    if mine := f" {PINS} bpf " not in mounts:
        subprocess.run(["mount", "-t", "bpf", "bpf", PINS], check=True)
    try:
        yield
    finally:
        if mine:
            subprocess.run(["umount", PINS], check=True)


class Keeper(Ends):
    """`fix --keep` on a cgroup, as long as the block lasts."""

    def __init__(self, place: Place, *remedy: str, prefix: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen([*prefix, NAGLETRACE, "fix", "--cgroup", place.path, *remedy, "--keep"],
                                        text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.errors = Lines(self.process.stderr)
        self.errors.wait_for("nagletrace: ready")

    def close(self) -> None:
        self.end(signal.SIGTERM)

    def end(self, how: signal.Signals) -> str:
        """Returns what it said."""
        if self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE)
        self.errors.finish()
        return self.errors.text()


def stalls_in(place: Place) -> int:
    """How many rounds stall of a program that runs in the cgroup."""
    with Lab("write-write-read", "--rounds", "6", prefix=place.enter()) as lab:
        return len(stalled_rounds(lab.play()))


@contextlib.contextmanager
def a_server(place: Place) -> Iterator[http.client.HTTPConnection]:
    """A connection to the server of Python, which is in the cgroup."""
    with subprocess.Popen([*place.enter(sys.executable, "-c", SERVER)], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            port = int(server.stdout.readline())
            yield http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        finally:
            server.kill()


def median_us(connection: http.client.HTTPConnection) -> float:
    """Of the requests behind the first three, which are fast."""
    took = []
    for _ in range(12):
        began = time.monotonic()
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"hello"
        took.append((time.monotonic() - began) * 1e6)
    return statistics.median(took[3:])


@needs_nodelay
@pytest.mark.parametrize("how", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.quick)])
def test_no_connection_of_the_cgroup_stalls_while_the_command_runs(place: Place, how: signal.Signals) -> None:
    assert stalls_in(place)
    with Keeper(place, "--nodelay") as keeper:
        of_keeper = status(keeper.process.pid)
        assert (of_keeper["CapPrm"], of_keeper["Seccomp"]) == ("0000000000000000", "2")
        assert stalls_in(place) == 0
        assert stalls_in(Place("/")) > 0, "outside of the cgroup nothing is changed"
        with Daemon() as daemon:
            assert daemon.ask("snapshot")["kept"] == {"TCP_NODELAY": 1, "TCP_BPF_DELACK_MAX": 0}
        assert json.loads(run("check", "-j").stdout)["kept"] == [
            {"option": "TCP_NODELAY", "cgroup": place.path, "pinned": False, "connections": 2}]
        listed = run("fix", "--cgroup", place.path)
        assert (listed.returncode, listed.stdout) == (
            0, f"TCP_NODELAY, while a command runs, set on 2 connections: {place.path}\n")
        said = keeper.end(how)
    if how == signal.SIGTERM:
        assert "set TCP_NODELAY on 2 connections, which keep it while they are open" in said and "refused" not in said
    assert run("fix", "--cgroup", place.path).stdout == f"nothing is kept in the cgroup {place.path} or below it\n"
    assert stalls_in(place)


@needs_nodelay
@pytest.mark.quick
def test_a_user_who_owns_the_cgroup_neither_ends_it_nor_hides_it(place: Place) -> None:
    """By its mode, by a name that would colour the terminal, or by a path of more bytes than one shows."""
    with Place(f"{place.path}/\x1b[31m{'x' * 150}/{'y' * 150}") as inner, Keeper(inner, "--nodelay") as keeper:
        os.chown(inner.directory, 65534, 65534)
        inner.directory.chmod(0o700)
        time.sleep(2.5)  # it looks each second whether the cgroup is there
        listed = run("fix", "--cgroup", inner.path)
        checked = json.loads(run("check", "-j").stdout)["kept"]
        said = keeper.end(signal.SIGTERM)
    assert (listed.returncode, listed.stdout.count("TCP_NODELAY, while a command runs")) == (0, 1)
    assert [kept["option"] for kept in checked] == ["TCP_NODELAY"]
    assert "is gone" not in said and "\x1b" not in said + listed.stdout + checked[0]["cgroup"]


@needs_nodelay
@pytest.mark.quick
def test_two_capabilities_suffice_to_keep_it(place: Place) -> None:
    caps = "-all,+bpf,+net_admin"
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", f"--inh-caps={caps}",
            f"--ambient-caps={caps}")
    with Keeper(place, "--nodelay", prefix=user):
        assert stalls_in(place) == 0


@needs_nodelay
@pytest.mark.quick
def test_a_pinned_remedy_stays_until_it_is_undone(place: Place, pins: None) -> None:
    done = run("fix", "--cgroup", place.path, "--nodelay", "--pin")
    assert done.returncode == 0 and done.stderr == (
        f"nagletrace: TCP_NODELAY is set on each connection that is established in {place.path} from now on, until "
        "--undo\n")
    try:
        assert stalls_in(place) == 0
        again = run("fix", "--cgroup", place.path, "--nodelay", "--pin")
        assert again.returncode == 2 and "already; --undo" in again.stderr and again.stderr.count("\n") == 1
        listed = run("fix", "--cgroup", "/").stdout
        assert f"TCP_NODELAY, pinned, set on 2 connections: {place.path}\n" in listed
    finally:
        undone = run("fix", "--cgroup", place.path, "--undo")
    assert undone.returncode == 0 and "no longer set on new connections" in undone.stderr
    assert stalls_in(place)
    assert not list(PINS.glob("nagletrace-*"))
    undone = run("fix", "--cgroup", place.path, "--undo")
    assert undone.returncode == 2 and undone.stderr.count("\n") == 1 and "nothing is pinned" in undone.stderr


@pytest.mark.parametrize("remedy", [
    pytest.param(("--nodelay",), marks=[needs_nodelay, pytest.mark.quick], id="nodelay"),
    pytest.param(("--quickack-limit", "10ms"), id="quickack-limit")])
def test_a_server_that_nobody_can_change_answers_in_time(place: Place, remedy: tuple[str, ...]) -> None:
    """TCP_NODELAY belongs to the server, which writes twice; the limit to the client, which delays its ACKs. Both are
    in the cgroup, for the test's own process joins it."""
    with a_server(place) as connection:
        assert median_us(connection) > STALLED_US
    home = Path("/proc/self/cgroup").read_text().rpartition("0::")[2].strip()
    place.take(os.getpid())
    try:
        with Keeper(place, *remedy), a_server(place) as connection:
            took = median_us(connection)
    finally:
        Place(home).take(os.getpid())
    assert took < STALLED_US, took
    if remedy[0] == "--nodelay":
        assert took < 10_000 or IN_GUEST, took


@pytest.mark.quick
def test_a_cgroup_that_vanishes_takes_it_along(pins: None) -> None:
    limit = ("--quickack-limit", "20ms")
    with Place(f"/nagletrace-gone-{os.getpid()}") as place:
        if not place.version_2:
            pytest.skip("no cgroup v2 here")
        assert run("fix", "--cgroup", place.path, *limit, "--pin").returncode == 0
        keeper = Keeper(place, *limit)
        listed = run("fix", "--cgroup", place.path).stdout.splitlines()
        assert sorted(line.split(",")[1] for line in listed) == [" pinned", " while a command runs"], listed
    assert keeper.process.wait(PATIENCE) == 0
    assert "the cgroup is gone" in keeper.end(signal.SIGTERM)
    with Place(f"/nagletrace-other-{os.getpid()}") as place:
        assert run("fix", "--cgroup", place.path, *limit, "--pin").returncode == 0
        assert len(list(PINS.glob("nagletrace-*"))) == 1, "the pin of the cgroup that is gone"
        assert run("fix", "--cgroup", place.path, "--undo").returncode == 0


def test_an_older_kernel_says_that_it_cannot(place: Place) -> None:
    if KERNEL >= (6, 1):
        pytest.skip("this kernel can")
    done = run("fix", "--cgroup", place.path, "--nodelay", "--keep")
    assert done.returncode == 3 and done.stderr == (
        "nagletrace: fix: this kernel sets no TCP_NODELAY for a program on a cgroup; Linux 6.1 and newer do\n")


@pytest.mark.quick
@pytest.mark.parametrize("arguments,code,words", [
    (("--quickack-limit", "1us", "--keep"), 2, ("--quickack-limit 1 us", "two jiffies")),
    (("--quickack-limit", "300ms", "--keep"), 2, ("--quickack-limit 300 ms", "200 ms")),
    (("--nodelay", "--pin"), 2, ("mount -t bpf bpf /sys/fs/bpf",)),
], ids=["short", "long", "no-bpffs"])
def test_what_cannot_be_kept_is_one_line(place: Place, arguments: tuple[str, ...], code: int, words: tuple[str, ...]
                                         ) -> None:
    if arguments[0] == "--nodelay" and KERNEL < (6, 1):
        pytest.skip("this kernel says something else first")
    prefix = ("unshare", "--mount", "--propagation", "private", "sh", "-c",
              f'umount {PINS} 2>/dev/null; exec "$@"', "sh")
    done = run("fix", "--cgroup", place.path, *arguments, prefix=prefix)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done
    assert all(word in done.stderr for word in words), done
    if arguments[0] == "--nodelay":  # the kernel is asked by a connection, and a firewall may drop what that sends
        prefix = ("unshare", "--net", "sh", "-c",
                  'set -e; ip link set lo up; tc qdisc add dev lo root tbf rate 8bit burst 10 latency 1ms;'
                  'exec timeout 5 "$@"', "sh")
        done = run("fix", "--cgroup", place.path, *arguments, prefix=prefix)
        assert done.returncode == 1 and "TCP_NODELAY on a connection over loopback: Connection timed out" in done.stderr
    unprivileged = run("fix", "--cgroup", place.path, "--nodelay", "--keep",
                       prefix=("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"))
    assert unprivileged.returncode == 4 and unprivileged.stderr.count("\n") == 1, unprivileged
