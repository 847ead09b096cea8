# SPDX-License-Identifier: GPL-2.0
"""Real programs, unmodified, stall by stall against the wire and their own system calls.

Some of them are relays: on the wire they look like senders that hold a segment, and their calls show that they do not.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import calls
import pytest
import score
import wire
from harness import PATIENCE, Record, Tracer, lacking
from processes import free_port
from programs import LOOPBACK, recorded, started
from witnesses import AT_ONCE, TOLERANCE, Capture

#: Loopback's smallest full segment: half of the first window.
MSS = 32768
PYTHON = "/usr/bin/python3"
Play = Callable[[], None]
#: A program that listens, in this directory: gives its port, and what its client does.
Scene = Callable[[Path], contextlib.AbstractContextManager[tuple[int, Play]]]


def client(directory: Path, *command: str, times: int = 1) -> Play:
    """What runs a program so many times, and records its calls."""
    def play() -> None:
        for i in range(times):
            done = subprocess.run([*calls.STRACE, "-o", directory / f"client{i}.calls", *command],
                                  capture_output=True, timeout=PATIENCE, cwd=directory)
            assert not done.returncode, done.stderr
    return play


BEANSTALK_CLIENT = """\
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def answer(end):
    got = b""
    while not got.endswith(end):
        got += connection.recv(4096)
    return got
for _ in range(20):
    connection.send(b"put 0 0 60 300\\r\\n")
    connection.send(b"x" * 300 + b"\\r\\n")
    answer(b"\\r\\n")
    connection.send(b"reserve\\r\\n")
    job = answer(b"x\\r\\n").split()[1]
    connection.send(b"delete " + job + b"\\r\\n")
    answer(b"DELETED\\r\\n")
"""


@contextlib.contextmanager
def beanstalkd(directory: Path) -> Iterator[tuple[int, Play]]:
    """A job queue, whose client writes a command and a job."""
    port = free_port()
    command = ["beanstalkd", "-l", LOOPBACK, "-p", str(port)]
    with started(recorded(command, directory / "server.calls"), port, directory):
        yield port, client(directory, PYTHON, "-c", BEANSTALK_CLIENT, str(port))


HTTP_CLIENT = """\
import http.client, sys
for _ in range(int(sys.argv[3])):
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
    for _ in range(3):
        connection.request("GET", sys.argv[2])
        response = connection.getresponse()
        assert response.status == 200 and response.read()
    connection.close()
"""

HAPROXY = """\
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend front
    bind 127.0.0.1:{port}
    default_backend back
backend back
    server only 127.0.0.1:{to}
"""


@contextlib.contextmanager
def haproxy(directory: Path) -> Iterator[tuple[int, Play]]:
    """Before a server whose replies stall; its client closes after the third reply."""
    port, to = free_port(), free_port()
    (directory / "page.txt").write_text("hello\n" * 50)
    (directory / "haproxy.cfg").write_text(HAPROXY.format(port=port, to=to))
    back = [PYTHON, "-m", "http.server", "--bind", LOOPBACK, "--protocol", "HTTP/1.1", str(to)]
    front = ["haproxy", "-db", "-f", "haproxy.cfg"]
    with started(recorded(back, directory / "server.calls"), to, directory), \
            started(recorded(front, directory / "relay.calls"), port, directory):
        yield port, client(directory, PYTHON, "-c", HTTP_CLIENT, str(port), "/page.txt", "10")


POST_CLIENT = """\
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for _ in range(25):
    connection.send(b"POST /page.cgi HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 5\\r\\n\\r\\n")
    connection.send(b"12345")
    got = b""
    while not got.endswith(b"\\r\\n0\\r\\n\\r\\n"):
        got += connection.recv(4096)
"""
LIGHTTPD = """\
server.modules = ("mod_cgi")
server.document-root = "{directory}"
server.bind = "127.0.0.1"
server.port = {port}
server.stream-response-body = 2
cgi.assign = (".cgi" => "/bin/sh")
"""
CGI = """\
printf 'Content-Type: text/plain\\r\\n\\r\\n'
echo one
sleep 0.005
echo two
"""


@contextlib.contextmanager
def lighttpd(directory: Path) -> Iterator[tuple[int, Play]]:
    """Starts a CGI program for each request, which comes in two writes, and passes the answer on in parts."""
    port = free_port()
    (directory / "page.cgi").write_text(CGI)
    (directory / "lighttpd.conf").write_text(LIGHTTPD.format(directory=directory, port=port))
    command = ["/usr/sbin/lighttpd", "-D", "-f", "lighttpd.conf"]
    with started(recorded(command, directory / "server.calls"), port, directory):
        yield port, client(directory, PYTHON, "-c", POST_CLIENT, str(port))


def git(directory: Path, *arguments: str, stdin: str = "") -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=b", *arguments], cwd=directory, input=stdin,
                   text=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def git_daemon(directory: Path) -> Iterator[tuple[int, Play]]:
    """Children serve clients that live for a moment."""
    port = free_port()
    git(directory, "init", "-b", "main", "repository")
    git(directory / "repository", "commit", "--allow-empty", "-m", "nothing")
    git(directory / "repository", "update-ref", "--stdin",
        stdin="".join(f"create refs/heads/branch{i} HEAD\n" for i in range(30)))
    command = ["git", "daemon", f"--listen={LOOPBACK}", f"--port={port}", f"--base-path={directory}", "--export-all"]
    with started(recorded(command, directory / "server.calls"), port, directory):
        clone = f"rm -rf clone && git clone -q git://{LOOPBACK}:{port}/repository clone"
        yield port, client(directory, "sh", "-c", clone, times=15)


@contextlib.contextmanager
def rsync(directory: Path) -> Iterator[tuple[int, Play]]:
    """A daemon whose protocol begins with lines from both ends."""
    port = free_port()
    (directory / "files").mkdir()
    for i in range(20):
        (directory / "files" / f"file{i}").write_text("x" * 100 * i)
    (directory / "rsyncd.conf").write_text(f"use chroot = no\nuid = root\ngid = root\npid file = {directory}/pid\n"
                                           f"[files]\npath = {directory}/files\n")
    command = ["rsync", "--daemon", "--no-detach", "--config=rsyncd.conf", f"--port={port}", f"--address={LOOPBACK}"]
    with started(recorded(command, directory / "server.calls"), port, directory):
        yield port, client(directory, "rsync", "-r", "--ignore-times", f"rsync://{LOOPBACK}:{port}/files", "copy",
                           times=10)


WRITE_WRITE_READ = """\
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for _ in range(20):
    connection.send(b"h" * 40)
    connection.send(b"b" * 60)
    connection.recv(10)
"""
ANSWERS = """\
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    with listener.accept()[0] as connection:
        came = 0
        while data := connection.recv(1000):
            came += len(data)
            if came == 100:
                came = 0
                connection.send(b"answer")
"""


@contextlib.contextmanager
def ssh_tunnel(directory: Path) -> Iterator[tuple[int, Play]]:
    """`ssh -L` and sshd pass each part of a request on as it comes."""
    port, local, to = free_port(), free_port(), free_port()
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / name], check=True)
    (directory / "user.pub").rename(directory / "authorized")
    Path("/run/sshd").mkdir(exist_ok=True)
    sshd = ["/usr/sbin/sshd", "-D", "-f", "/dev/null", "-p", str(port), "-h", str(directory / "host")]
    for option in (f"ListenAddress={LOOPBACK}", f"AuthorizedKeysFile={directory}/authorized", "StrictModes=no",
                   "PermitRootLogin=yes", "UsePAM=no", f"PidFile={directory}/sshd.pid"):
        sshd += ["-o", option]
    ssh = ["ssh", "-F", "/dev/null", "-N", "-i", str(directory / "user"), "-p", str(port), "-o", "IdentitiesOnly=yes",
           "-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={directory}/known",
           "-L", f"{LOOPBACK}:{local}:{LOOPBACK}:{to}", f"root@{LOOPBACK}"]
    with contextlib.ExitStack() as stack:
        for name, command, listens in (("server", [PYTHON, "-c", ANSWERS, str(to)], to), ("sshd", sshd, port),
                                       ("ssh", ssh, local)):
            stack.enter_context(started(recorded(command, directory / f"{name}.calls"), listens, directory))
        yield local, client(directory, PYTHON, "-c", WRITE_WRITE_READ, str(local))


def judged(directory: Path, records: list[Record], name: str, since: int, port: str) -> score.Score:
    """Compares what was told of the connections in the recordings with what these and the wire say.

    since: when the tracer began (ns since the epoch). port: only its connections, or all.
    """
    logs = calls.logs_of([call for file in sorted(directory.glob("*.calls")) for call in calls.read(file)])
    pairs = {frozenset(ends) for ends in logs if any(end.endswith(port) for end in ends)}
    segments = [s for s in wire.read(directory / "lo.pcap") if frozenset((s.source, s.destination)) in pairs]
    stalls = score.truth(segments, segments, logs, MSS, wire.Limits(at_once=AT_ONCE))
    return score.compare(name, [s for s in stalls if s.ended - s.duration > since],
                         [r for r in records if frozenset(score.ends_of(r)) in pairs], TOLERANCE)


@pytest.mark.parametrize("by_port", [False, True], ids=["all", "port"])
@pytest.mark.parametrize("scene,least", [(beanstalkd, 15), (haproxy, 8), (lighttpd, 10), (git_daemon, 2), (rsync, 10),
                                         (ssh_tunnel, 10)])
def test_all_stalls_of_a_program_are_told_and_no_other(scene: Scene, by_port: bool, least: int, tmp_path: Path,
                                                       record_property: Callable[[str, object], None]) -> None:
    with contextlib.closing(Capture(os.getpid(), "lo", tmp_path / "lo.pcap")) as wired, scene(tmp_path) as (port, play):
        with Tracer(*(("-P", str(port)) if by_port else ())) as tracer:
            since = time.time_ns()
            play()
            tracer.stop()
        wired.read_all()
        wired.end()
    name = f"{scene.__name__}{' by port' * by_port}"
    made = judged(tmp_path, tracer.stalls(), name, since, f":{port}" if by_port else "")
    missing = lacking(tracer)
    record_property("score", f"{made.line()}  may lack {missing}")
    assert not made.false and len(made.missed) <= missing and not made.other_writes, made.wrong()
    if scene is haproxy and by_port:
        assert not made.wire, "the relay itself holds nothing"
    else:
        assert made.matched >= least, f"nothing was shown: {made.line()}"
    if scene is lighttpd:
        receivers = {stall["receiver"]["comm"] for stall in tracer.stalls() if stall["evidence"] == "seen"}
        assert receivers == {"lighttpd"}, "none names the CGI program, which had the socket until its exec"
