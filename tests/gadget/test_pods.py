# SPDX-License-Identifier: GPL-2.0
"""Names of pods, which Inspektor Gadget finds by a containerd of the tests' own and by kprobes: in guests, where
test_in_guests.py runs this.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from containers import CONTAINER, IMAGE, NAMESPACE, Containerd, Pod
from harness import Lab, assert_durations_match, stalled_rounds
from running import Gadgets
from test_gadget import as_told


@pytest.fixture
def containerd(tmp_path: Path) -> Iterator[Containerd]:
    running = Containerd(tmp_path)
    yield running
    running.stop()


def test_each_stall_of_a_container_has_its_pods_name(images: Gadgets, containerd: Containerd) -> None:
    """As users run it: what runs in no container is not told. One pod is there first, the other comes later."""
    stalls = ("write-write-read", "--rounds", "8")
    with Pod(containerd, "cart", *stalls) as cart, images.run(whole_host=False) as running, \
            Pod(containerd, "checkout", *stalls) as checkout, Lab(*stalls) as outside:
        felt = {pod: stalled_rounds(pod.play()) for pod in (outside, cart, checkout)}
        running.wait_for(len(felt[cart]) + len(felt[checkout]), running.events)
        running.stop()
        events = running.events()
    assert all(len(rounds) >= 5 for rounds in felt.values())
    networks = {pod.ready["client"]["netns"] for pod in (cart, checkout)}
    assert len(networks) == 2 and {event["netns_id"] for event in events} == networks
    for pod in (cart, checkout):
        told = [event for event in events if event["netns_id"] == pod.ready["client"]["netns"]]
        assert_durations_match(felt[pod], [as_told(event) for event in told])
        for event in told:
            assert (event["k8s"]["namespace"], event["k8s"]["podName"], event["k8s"]["containerName"]) == (
                NAMESPACE, pod.name, CONTAINER), running.errors.text()[-3000:]
            assert (event["runtime"]["runtimeName"], event["runtime"]["containerId"],
                    event["runtime"]["containerImageName"]) == ("containerd", pod.container, IMAGE)
            assert (event["cause"], event["side"], event["evidence"], event["pattern"]) == (
                "nagle_delayed_ack", "sender", "seen", "write_write_read")
            assert (event["proc"]["comm"], event["peer_comm"]) == ("lab-client", "lab-server")
