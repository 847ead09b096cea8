# SPDX-License-Identifier: GPL-2.0
"""What the dashboards are drawn of: hosts of two clusters, each a network namespace with a daemon of its own, in which
programs stall and are mended, and a real Prometheus that watches. Nothing is made up but the names.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import dashboards
from pods import Place, Pod, a_pod
from spaces import Namespace
from stack import ROOT, Program, Stack

EU, US = "eu-1", "us-1"
#: Cluster of each host.
HOSTS = {"web-1": EU, "web-2": EU, "db-1": US, "cache-1": US}
#: Nobody watches it in the end.
GONE = "cache-1"
#: Of the programs, in s.
LONGEST = 3600


@dataclass(frozen=True)
class Actor:
    """A program of a host: how the lab plays it, and in which cgroup; "": in the pod. fix: what mends it."""

    host: str
    name: str
    server: str
    play: tuple[str, ...]
    service: str = ""
    fix: tuple[str, ...] = ()


ACTORS = (
    Actor("web-1", "checkout", "orders", ("write-write-read", "--interval", "25ms"), fix=("--nodelay",)),
    Actor("web-1", "search", "index", ("header-body",), "search.service"),
    Actor("web-2", "billing", "ledger", ("length-data", "--interval", "60ms"), "billing.service"),
    Actor("web-2", "mailer", "relay", ("cork-forgotten", "--interval", "300ms"), "mailer.service"),
    Actor("db-1", "replica", "primary", ("reply-tail", "--interval", "150ms"), "replica.service"),
    Actor("db-1", "backup", "vault", ("one-way", "--interval", "20ms"), "backup.service"),
    Actor("cache-1", "sessions", "store", ("echo",), "sessions.service"),
)


@dataclass
class Scene:
    stack: Stack
    spaces: dict[str, Namespace]
    pod: Pod
    places: dict[str, Place]
    daemons: dict[str, Program]
    playing: dict[str, Program] = field(default_factory=dict)

    def play(self, actor: Actor, *more: str) -> None:
        place = self.places[actor.service] if actor.service else self.pod.place
        lab: list[str | Path] = [ROOT / "build" / "nagle-lab", *actor.play, "--client-name", actor.name,
                                 "--server-name", actor.server, "--rounds", "100000", "--timeout", f"{LONGEST}s", *more]
        enter = place.enter(*self.spaces[actor.host].enter())
        self.playing[actor.name] = Program(actor.name, self.stack.directory / f"{actor.name}.log", [*enter, *lab])

    def go_on(self, seconds: float) -> None:
        """So much of Prometheus's time; a program that ends is a fault."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(1.0, left))
            for program in self.playing.values():
                if program.process.poll() is not None:
                    raise RuntimeError(f"{program.name} has ended: {program.log.read_text()[-1000:]}")

    def mend(self) -> None:
        """Who can be mended is, and one host is left without its daemon."""
        for actor in ACTORS:
            if actor.fix:
                self.playing[actor.name].stop()
                self.play(actor, *actor.fix)
        self.daemons[GONE].stop()

    def stop(self) -> None:
        for program in self.playing.values():
            program.stop()


@contextlib.contextmanager
def playing(directory: Path) -> Iterator[Scene]:
    with contextlib.ExitStack() as leave:
        pod = leave.enter_context(a_pod())
        kube_state = (f'kube_pod_container_info{{namespace="shop",pod="checkout-1",container="app",'
                      f'container_id="containerd://{pod.container}"}} 1\n')
        stack = Stack(directory, None, kube_state=kube_state)
        leave.callback(stack.stop)
        spaces = {name: leave.enter_context(Namespace()) for name in HOSTS}
        places = {actor.service: leave.enter_context(Place(f"/system.slice/{actor.service}"))
                  for actor in ACTORS if actor.service}
        daemons = {name: stack.add_host(name, cluster, "--netns", str(spaces[name].holder.pid), "--by-cgroup")
                   for name, cluster in HOSTS.items()}
        scene = Scene(stack, spaces, pod, places, daemons)
        leave.callback(scene.stop)
        for actor in ACTORS:
            scene.play(actor)
        yield scene


#: Whose story the dashboard of one connection tells.
STORY = "checkout"


def looked_at(directory: Path, stalling: float, mended: float) -> list[dashboards.Shown]:
    """Each dashboard with what it is drawn of, after so many seconds of stalls and of their end."""
    with playing(directory) as scene:
        start = time.time()
        scene.go_on(stalling)
        scene.mend()
        scene.go_on(mended)
        when = dashboards.Range(start, time.time())
        chosen = {"nagletrace-connection": {"comm": STORY}}
        return [dashboards.ask(made, scene.stack.addresses["prometheus"], when, chosen.get(name, {}))
                for name, made in dashboards.dashboards().items()]
