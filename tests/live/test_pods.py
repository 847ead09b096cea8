# SPDX-License-Identifier: GPL-2.0
"""In which pod and container somebody stalls: told by name, wherever the tracer itself runs."""

from __future__ import annotations

import os
import secrets

import pytest
from daemon import Daemon
from harness import Lab, Record, Tracer, assert_felt, stalled_rounds, unseen
from pods import Place, a_pod
from test_daemon import report, until

pytestmark = pytest.mark.quick

WHO = ("address", "netns", "pid", "comm", "cgroup", "container_id", "pod_uid")


def ends_of(tracer: Tracer) -> set[tuple[Record, ...]]:
    return {tuple((end, *(stall[end].get(key) for key in WHO)) for end in ("sender", "receiver"))
            for stall in tracer.stalls() if "netns" in stall["receiver"]}


def test_a_record_is_the_same_in_a_cgroup_namespace_and_out_of_it() -> None:
    """The client is in a pod, the server in a container of Docker's; one of the tracers is in a container too."""
    docker, name = secrets.token_hex(32), f"/nagletrace-test-{os.getpid()}"
    with a_pod() as pod, Place(f"/docker/{docker}") as container, Place(f"{name}/of/a/tracer") as own, \
            Lab("write-write-read", "--own-netns", "--linger", "500ms") as lab:
        pod.place.take(lab.client)
        container.take(lab.server)
        with Tracer("-p", str(lab.client)) as outside, Tracer("-p", str(lab.client), text=True) as text, \
                Tracer("-p", str(lab.client), prefix=own.enter("unshare", "-C")) as inside:
            result = lab.play()
            for tracer in (outside, inside, text):
                tracer.wait()  # the process has ended
    assert_felt(result, len(outside.stalls()), unseen(outside))
    assert ends_of(inside) == ends_of(outside) and len(ends_of(outside)) == 1
    [(sender, receiver)] = ends_of(outside)
    expected = (pod.place.path, pod.container, pod.uid), (container.path, docker, None)
    if not pod.place.version_2:
        expected = tuple((None, *ids) for _, *ids in expected)
    assert (sender[-3:], receiver[-3:]) == expected
    assert f"lab-client[{lab.client}] in pod {pod.uid[:8]}…  " in text.lines.text()


def test_a_daemon_counts_each_container_in_series_of_its_own() -> None:
    with a_pod() as pod, a_pod() as other, Lab("write-write-read", "--own-netns", "--linger", "500ms") as lab:
        pod.place.take(lab.client)
        other.place.take(lab.server)
        space = ("--netns", str(lab.client))
        with Daemon(*space, "--by-cgroup") as daemon, Daemon(*space) as plain:
            stalls = len(stalled_rounds(lab.play()))
            snapshot = until(daemon, stalls - int(daemon.ask("snapshot").get("unseen", 0)))
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
