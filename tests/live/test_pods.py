# SPDX-License-Identifier: GPL-2.0
"""In which pod and container somebody stalls: told by name, wherever the tracer itself runs."""

from __future__ import annotations

import os
import secrets
import uuid
from pathlib import Path

import pytest
from daemon import Daemon, lacking_in
from harness import Lab, Record, Tracer, assert_felt, lacking, run, stalled_rounds, trace
from pods import Place, a_pod
from test_daemon import report

WHO = ("address", "netns", "pid", "comm", "cgroup", "container_id", "pod_uid")


def ends_of(tracer: Tracer) -> set[tuple[Record, ...]]:
    return {tuple((end, *(stall[end].get(key) for key in WHO)) for end in ("sender", "receiver"))
            for stall in tracer.stalls() if "netns" in stall["receiver"]}


@pytest.mark.quick
def test_a_record_is_the_same_in_a_cgroup_namespace_and_out_of_it() -> None:
    """The client is in a pod, the server in a container of Docker's; one of the tracers is in the client's pod too."""
    docker = secrets.token_hex(32)
    with a_pod() as pod, Place(f"/docker/{docker}") as container, pod.container_beside() as own, \
            Lab("write-write-read", "--own-netns", "--linger", "500ms") as lab:
        pod.place.take(lab.client)
        container.take(lab.server)
        with Tracer("-p", str(lab.client)) as outside, Tracer("-p", str(lab.client), text=True) as text, \
                Tracer("-p", str(lab.client), prefix=own.enter("unshare", "-C")) as inside:
            result = lab.play()
            for tracer in (outside, inside, text):
                tracer.wait()  # the process has ended
    assert_felt(result, len(outside.stalls()), lacking(outside))
    assert ends_of(inside) == ends_of(outside) and len(ends_of(outside)) == 1
    [(sender, receiver)] = ends_of(outside)
    expected = (pod.place.path, pod.container, pod.uid), (container.path, docker, None)
    if not pod.place.version_2:
        expected = tuple((None, *ids) for _, *ids in expected)
    assert (sender[-3:], receiver[-3:]) == expected
    assert f"lab-client[{lab.client}] in pod {pod.uid[:8]}…  " in text.lines.text()


def with_runtime(directory: Path, name: str, container: str) -> dict[str, str]:
    """An environment in which podman knows this container, as it answers, and docker knows none."""
    asked = f"container inspect --format {{{{.ID}}}} {name}"
    for runtime, script in (("docker", "echo; exit 1"), ("podman", f'[ "$*" = "{asked}" ] && echo {container}')):
        (directory / runtime).write_text(f"#!/bin/sh\n{script}\n")
        (directory / runtime).chmod(0o755)
    return {"PATH": f"{directory}:{os.environ['PATH']}"}


@pytest.mark.parametrize("way", ["id", pytest.param("name", marks=pytest.mark.quick),
                                 pytest.param("pod", marks=pytest.mark.quick), "unit"])
def test_a_container_a_pod_and_a_unit_choose_their_processes(way: str, tmp_path: Path) -> None:
    unit = f"nagletrace-{secrets.token_hex(4)}.service"
    with a_pod() as pod, a_pod() as other, Place(f"/nagletrace.slice/{unit}") as service, \
            Lab("write-write-read") as lab:
        place = service if way == "unit" else pod.place
        if not place.version_2:
            pytest.skip("no cgroup v2 here")
        place.take(lab.client)
        other.place.take(lab.server)
        chosen = {"id": ("--container", pod.container[:12]), "name": ("--container", "cafe"),
                  "pod": ("--pod", pod.uid), "unit": ("--unit", unit)}[way]
        result, tracer = trace(lab, *chosen, environment=with_runtime(tmp_path, "cafe", pod.container))
    assert_felt(result, len(tracer.stalls()), lacking(tracer))
    assert {(stall["side"], stall["sender"]["pid"]) for stall in tracer.stalls()} == {("sender", lab.client)}
    path = place.path if way in ("id", "name", "unit") else place.path.rpartition("/")[0]
    assert f"nagletrace: {chosen[1]} is the cgroup {path}\n" in tracer.errors.text()


@pytest.mark.quick
def test_what_is_not_there_or_there_twice_is_one_line() -> None:
    unit = f"nagletrace-{secrets.token_hex(4)}.service"
    # in a user's own manager that user may call a cgroup as they like
    with Place(f"/nagletrace.slice/{unit}") as one, Place(f"/nagletrace-other.slice/{unit}") as two, \
            Place(f"/nagletrace.slice/user@1.service/{unit[12:]}"):
        if not one.version_2:
            pytest.skip("no cgroup v2 here")
        cases = {("--container", secrets.token_hex(32)): ("no such container", "docker ps"),
                 ("--pod", str(uuid.uuid4())): ("no such pod", "kubectl"),
                 ("--unit", "no-such.service"): ("no such unit", "systemctl"),
                 ("--unit", unit[12:]): ("no such unit",),
                 ("--unit", unit): (one.path, two.path, "--cgroup")}
        for arguments, words in cases.items():
            done = run(*arguments)
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
            assert all(word in done.stderr for word in (arguments[0], *words)), done


@pytest.mark.quick
def test_a_daemon_counts_each_container_in_series_of_its_own() -> None:
    with a_pod() as pod, a_pod() as other, Lab("write-write-read", "--own-netns", "--linger", "500ms") as lab:
        pod.place.take(lab.client)
        other.place.take(lab.server)
        space = ("--netns", str(lab.client))
        with Daemon(*space, "--by-cgroup") as daemon, Daemon(*space) as plain:
            stalls = len(stalled_rounds(lab.play()))
            lacks = lacking_in(daemon.ask("snapshot"))
            snapshot = daemon.until(lambda told: told["stalls"] >= stalls - lacks, top=10)
            last = daemon.ask("snapshot", last=True)["series"]
            wide = report(daemon, "--wide").stdout
            assert "pod_uid" not in str(plain.ask("snapshot")["series"])
            for one in (daemon, plain):
                one.stop()
    found = {(s["container_id"], s["pod_uid"]) for s in snapshot["series"] if s["comm"] == "lab-client"}
    assert found == {(pod.container, pod.uid)}
    assert f"lab-client[{lab.client}] in pod {pod.uid} container {pod.container}  " in wide
    [client] = lab.ready["connections"]
    assert not any("last" in series for series in snapshot["series"])
    for series in last:
        told = {key: series["last"][key] for key in ("pid", "netns", "local", "remote", "bytes")}
        assert told == {"pid": lab.client, "netns": lab.ready["client"]["netns"], "local": client["client"],
                        "remote": client["server"], "bytes": 7}
    [connection] = snapshot["connections"]
    assert connection["sender"]["pod_uid"] == pod.uid and connection["receiver"]["pod_uid"] == other.uid
