# SPDX-License-Identifier: GPL-2.0
"""A daemon with --standby behind the real Prometheus: rates and the alert are right in both states, and through each
change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from harness import Lab, stalled_rounds
from processes import wait_until
from spaces import Namespace
from stack import LOOK_BACK, Stack, get, running

ALERT = {"alertname": "NagletraceStalls40ms", "comm": "lab-client", "severity": "warning"}
#: A look stands for so much time, where looks are cheap, and is wrong by as much. A busy machine makes them dearer.
SLOT_S = 0.5
#: 40 ms less a jiffy, at HZ=250.
DELAYED_S = 0.036


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Namespace() as space, running(tmp_path_factory.mktemp("standby"), "--standby", "--standby-after", LOOK_BACK,
                                       "--netns", str(space.holder.pid)) as made:
        made.space = space
        yield made


def metric(stack: Stack, name: str) -> float:
    """What the exporter tells now, over all labels."""
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$",
                                                    get(stack.addresses["exporter"] + "/metrics"), re.MULTILINE))


def lost_s(stack: Stack) -> float:
    return metric(stack, "nagletrace_stall_excess_seconds_total") + metric(
        stack, "nagletrace_sampled_excess_seconds_total")


def attached(stack: Stack, value: int) -> bool:
    return [sample["value"][1] for sample in stack.query("nagletrace_attached")] == [str(value)]


def rate(stack: Stack) -> float:
    """Seconds lost in a second, as the recording rule has it."""
    return sum(float(sample["value"][1]) for sample in stack.query("instance:nagletrace_excess_seconds:rate5m"))


def test_rates_and_the_alert_are_right_in_both_states_and_through_the_change(stack: Stack) -> None:
    """Twice: nothing attached, stalls, attached, the alert, quiet, nothing attached."""
    wait_until("it is in standby", lambda: attached(stack, 0))
    for n in range(2):
        before, posted = lost_s(stack), len(stack.webhook.alerts)

        def has(status: str, since: int = posted) -> bool:
            return any(alert["status"] == status and ALERT.items() <= alert["labels"].items()
                       for alert in stack.webhook.alerts[since:])

        with Lab("write-write-read", "--rounds", "340", prefix=stack.space.enter()) as lab:
            lab.go()
            wait_until("a look finds the stall", lambda: attached(stack, 1))
            wait_until("the alert fires", lambda: has("firing"))
            wait_until("the rate is that of a connection that does nothing but wait",
                       lambda: 0.7 < rate(stack) < 1.3)
            wait_until("the program ends", lambda: lab.process.poll() is not None)
            rounds = stalled_rounds(lab.result())
        true_s = sum(one["latency_us"] for one in rounds) / 1e6
        wait_until("the alert resolves", lambda: has("resolved"))
        wait_until("it is quiet, and detaches", lambda: attached(stack, 0))
        slot_s = max(SLOT_S, 1000 * metric(stack, "nagletrace_look_cpu_seconds_total")
                     / metric(stack, "nagletrace_looks_total"))
        # what was counted and what was estimated are what the application lost: no delayed ACK is shorter, and a round
        # is longer by what a busy machine adds
        lost = lost_s(stack) - before
        assert DELAYED_S * len(rounds) - 3 * slot_s < lost < true_s + 3 * slot_s, (len(rounds), true_s, slot_s)
        wait_until("the rate is nought again", lambda: rate(stack) == 0)
        assert metric(stack, "nagletrace_state_changes_total") == 2 * n + 2
    assert metric(stack, "nagletrace_false_alarms_total") == 0
    counters = [name for name in stack.label_values("__name__", '{__name__=~"nagletrace_.*"}')
                if re.search("_(total|bucket|count|sum)$", name)]
    assert "nagletrace_sampled_excess_seconds_total" in counters and "nagletrace_stalls_total" in counters
    for name in counters:
        assert stack.query(f"resets({name}[5m]) > 0") == [], "a counter went back"
    spent = metric(stack, "nagletrace_state_seconds_total")
    [up] = stack.query("time() - nagletrace_start_time_seconds")
    assert abs(spent - float(up["value"][1])) < 3


def test_promtool_finds_nothing_to_say_of_the_metrics_of_standby(stack: Stack) -> None:
    stack.check_metrics()
