# SPDX-License-Identifier: GPL-2.0
"""From the lab's stall to the page: daemon, exporter, Prometheus, Alertmanager, webhook, all of them real."""

from __future__ import annotations

import re
import shlex
import subprocess
import urllib.parse
from collections.abc import Iterator

import pytest
import yaml
from harness import Lab, stalled_rounds
from pods import Pod, a_pod
from processes import kill, wait_until
from spaces import Namespace
from stack import LOOK_BACK, NAGLETRACE, PATIENCE, ROOT, RULES, Stack, get, running
from test_dashboard import DASHBOARDS, ONLY_TROUBLE, TARGETS, filled_in, variables

ALERT = {"alertname": "NagletraceStalls40ms", "comm": "lab-client", "severity": "warning"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Namespace() as space, a_pod() as pod, running(
            tmp_path_factory.mktemp("stack"), "--netns", str(space.holder.pid), "--by-cgroup",
            kube_state=kube_state_of(pod)) as made:
        made.space, made.pod = space, pod
        yield made


def kube_state_of(pod: Pod) -> str:
    """What kube-state-metrics would say of it."""
    where = 'namespace="shop",pod="checkout-1"'
    return (f'kube_pod_container_info{{{where},container="app",container_id="containerd://{pod.container}"}} 1\n'
            f'kube_pod_info{{{where},uid="{pod.uid}",node="here"}} 1\n')


def lab_in(stack: Stack, *arguments: str) -> Lab:
    """In the namespace that the daemon watches: whoever stalls elsewhere on this host changes nothing. In the pod."""
    return Lab("write-write-read", *arguments, prefix=stack.pod.place.enter(*stack.space.enter()))


def asked(expr: str) -> str:
    return filled_in(expr, __rate_interval=LOOK_BACK, __range="1m")


def not_watched(stack: Stack) -> set[str]:
    """The hosts that the dashboard of the fleet has for that."""
    [first, *_] = [target for _, panel, target in TARGETS if panel["title"] == ONLY_TROUBLE]
    return {sample["metric"]["instance"] for sample in stack.query(asked(first["expr"]))}


def check_every_query(stack: Stack) -> None:
    def all_answer() -> bool:
        """But for what the lab has none of."""
        return all(stack.query(asked(target["expr"])) for _, panel, target in TARGETS
                   if panel["title"] != ONLY_TROUBLE and not target["legendFormat"].endswith(" (no stall)"))

    wait_until("every query of the dashboards returns data", all_answer)
    for where, panel, target in TARGETS:
        answer = stack.query(asked(target["expr"]))
        values = [float(sample["value"][1]) for sample in answer]
        assert all(value >= 0 for value in values), f"{where}: {values}"
        # this Prometheus is of no cluster
        named = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))) - {"cluster"}
        assert panel["type"] == "table" or all(named <= sample["metric"].keys() for sample in answer), where
    [rate] = [sample for _, panel, target in TARGETS if panel["title"] == "Stalls per second now"
              for sample in stack.query(asked(target["expr"]))]
    assert float(rate["value"][1]) > 1, "the lab stalls twenty times a second"
    for name, dashboard in DASHBOARDS.items():
        for variable in variables(dashboard).values():
            if variable["type"] == "query" and variable["name"] != "cluster":
                metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr]
                found = stack.label_values(label, asked(metric))
                assert found, f"{name}: {variable['name']}"
                assert variable["name"] != "comm" or "lab-client" in found
    recorded = [rule["record"] for group in yaml.safe_load((RULES / "recording.yml").read_text())["groups"]
                for rule in group["rules"]]
    for name in recorded:
        assert stack.query(name), f"{name} has no value"


@pytest.mark.quick
def test_a_stall_fires_the_alert_and_the_fix_resolves_it(stack: Stack) -> None:
    with lab_in(stack, "--rounds", "10000") as stalling:
        stalling.go()
        wait_until("the alert reaches the webhook", lambda: stack.webhook.has("firing", **ALERT))
        wait_until("the alert of its pod does", lambda: stack.webhook.has(
            "firing", alertname="NagletracePodStalls40ms", namespace="shop", pod="checkout-1"))
        check_every_query(stack)
        assert not stack.webhook.has("resolved", **ALERT)
    firing = next(a for a in stack.webhook.alerts if ALERT.items() <= a["labels"].items())
    assert firing["annotations"]["description"].endswith("; pods: shop/checkout-1 (app).")
    assert "lab-client" in firing["annotations"]["summary"] and stack.instance in firing["annotations"]["summary"]
    assert firing["annotations"]["runbook_url"].endswith("NagletraceStalls40ms.md")
    with lab_in(stack, "--rounds", "20000", "--nodelay", "--interval", "2ms") as fixed:
        fixed.go()
        wait_until("the alert resolves", lambda: stack.webhook.has("resolved", **ALERT))
    assert {a["labels"]["alertname"] for a in stack.webhook.alerts} <= {
        "NagletraceStalls40ms", "NagletracePodStalls40ms", "NagletraceExcessTime", "NagletracePodExcessTime"}


@pytest.mark.quick
def test_a_metric_leads_to_the_connection_and_the_write_behind_it(stack: Stack) -> None:
    """By exemplars: the process, both addresses, and the 7 bytes that the lab's second write leaves waiting."""
    with lab_in(stack, "--rounds", "10000") as stalling:
        [connection] = stalling.ready["connections"]
        expected = {"pid": str(stalling.client), "local": connection["client"], "remote": connection["server"],
                    "bytes": "7"}
        stalling.go()

        def told() -> bool:
            return any(exemplar["labels"] == expected for exemplar in
                       stack.exemplars('nagletrace_stall_seconds_bucket{comm="lab-client"}'))

        wait_until(f"an exemplar of {expected}", told)


@pytest.mark.quick
def test_an_alert_leads_to_the_connection_and_the_write(stack: Stack) -> None:
    """By its link: the dashboard that it names, with its variables chosen, asks for exemplars that have both."""
    wanted = {**ALERT, "comm": "writer"}
    with lab_in(stack, "--rounds", "10000", "--client-name", "writer") as stalling:
        [connection] = stalling.ready["connections"]
        stalling.go()
        wait_until("the alert is there", lambda: stack.webhook.has("firing", **wanted))
        alert = next(a for a in stack.webhook.alerts if wanted.items() <= a["labels"].items())
        link = urllib.parse.urlsplit(alert["annotations"]["dashboard"])
        uid = link.path.removeprefix("/d/")
        chosen = {name.removeprefix("var-"): value
                  for name, [value] in urllib.parse.parse_qs(link.query, keep_blank_values=True).items()}
        assert chosen.keys() == {"cluster", "job", "instance", "comm"} <= variables(DASHBOARDS[uid]).keys()
        [target] = [target for panel in DASHBOARDS[uid]["panels"] for target in panel.get("targets", [])
                    if target.get("exemplar") and "(0.5," in target["expr"]]
        query = filled_in(target["expr"], __rate_interval=LOOK_BACK, **chosen)
        ends = {"local": connection["client"], "remote": connection["server"], "bytes": "7"}
        wait_until(f"an exemplar of {ends}", lambda: any(
            ends.items() <= exemplar["labels"].items() for exemplar in stack.exemplars(query)))
        # and the command to type on the host
        name, *words = shlex.split(alert["annotations"]["command"])
        assert name == "nagletrace"
        said = subprocess.check_output([NAGLETRACE, *words, "--socket", stack.socket], text=True)
    for told in (f"writer[{stalling.client}]", connection["client"], "7 B", "TCP_NODELAY"):
        assert told in said, said


def test_a_fast_network_alerts_nobody(stack: Stack) -> None:
    """Many rounds without a stall: nothing of the kind fires, and what fired before is over."""
    with lab_in(stack, "--rounds", "5000", "--nodelay", "--interval", "2ms") as lab:
        assert stalled_rounds(lab.play()) == []
    quiet = 'ALERTS{alertname=~"NagletraceStalls.*", alertstate="firing"}'
    wait_until("no alert of a stall is active", lambda: not stack.query(quiet))


@pytest.mark.quick
def test_the_daemon_gone_is_told_and_its_return_too(stack: Stack) -> None:
    """Killed: up is 0 and no number stays; started anew: counters begin at zero, and the alert resolves."""
    down = {"alertname": "NagletraceDown", "severity": "warning"}
    kill(stack.daemon.process)
    exposition = get(stack.addresses["exporter"] + "/metrics")
    assert "nagletrace_up 0.0" in exposition and "nagletrace_stalls_total" not in exposition
    wait_until("NagletraceDown reaches the webhook", lambda: stack.webhook.has("firing", **down))
    assert stack.instance in not_watched(stack)
    stack.start_daemon()
    assert "nagletrace_up 1.0" in get(stack.addresses["exporter"] + "/metrics")
    wait_until("NagletraceDown resolves", lambda: stack.webhook.has("resolved", **down))
    assert not not_watched(stack)
    resets = stack.query('resets(nagletrace_writes_total[1m])')
    assert all(float(sample["value"][1]) <= 1 for sample in resets)


@pytest.mark.quick
def test_promtool_finds_nothing_to_say_of_the_metrics(stack: Stack) -> None:
    stack.check_metrics()


def test_the_demonstration_starts_the_same_set_and_says_where() -> None:
    done = subprocess.run(["/usr/bin/python3", ROOT / "tests" / "monitoring" / "demo.py", "--seconds", "25"],
                          capture_output=True, text=True, timeout=25 + 2 * PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("exporter", "prometheus", "alertmanager"):
        assert re.search(rf"^ *{name} +http://127\.0\.0\.1:\d+/", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"firing +NagletraceStalls40ms .*lab-client", done.stdout), done.stdout
    assert "nagletrace*.json" in done.stdout
