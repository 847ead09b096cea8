# SPDX-License-Identifier: GPL-2.0
"""The chart in a Kubernetes of one node: it is admitted, runs, and names the pod that stalls."""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.parse
from pathlib import Path
from typing import Any

import gadgets
import go_modules
import pytest
import yaml
from charts import RULES, Helm
from cluster import NODE, Cluster, Object, wait_until
from debian import Unavailable
from running import ENTER, Running
from stack import compressed, get

NAMESPACE, LABELS = "nagletrace", {"app.kubernetes.io/name": "nagletrace"}
SHOP, USER = "shop", 1000
PROMETHEUS, STATE = 9090, 9092
#: The version whose client is of this Kubernetes, or the next.
KUBE_STATE = "v2.18.0"

#: A program that stalls four times a second, as strict a pod as there is.
CHECKOUT = f"""\
apiVersion: v1
kind: Namespace
metadata:
  name: {SHOP}
  labels:
    pod-security.kubernetes.io/enforce: restricted
---
apiVersion: v1
kind: Pod
metadata:
  name: checkout
  namespace: {SHOP}
  labels:
    app: checkout
spec:
  automountServiceAccountToken: false
  restartPolicy: Never
  securityContext:
    runAsUser: {USER}
    runAsNonRoot: true
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: lab
      image: nagle-lab:1
      args: [write-write-read, --rounds, "100000", --interval, 200ms, --timeout, 1800s]
      securityContext:
        allowPrivilegeEscalation: false
        capabilities:
          drop: [ALL]
"""

@pytest.fixture(scope="module")
def traced(cluster: Cluster, helm: Helm) -> Object:
    """The chart's pod, ready."""
    told = cluster.apply(helm.template())
    assert "daemonset.apps/nagletrace created" in told
    return cluster.ready_pod(NAMESPACE, LABELS)


@pytest.fixture(scope="module")
def checkout(cluster: Cluster) -> Object:
    """The pod that stalls."""
    # its service account is made once its namespace is there
    wait_until("the pod is made", lambda: "checkout" in cluster.apply(CHECKOUT, check=False)
               and cluster.objects("pods", SHOP), why=cluster.story)
    return cluster.ready_pod(SHOP, {"app": "checkout"})


def container_ids(pod: Object) -> dict[str, str]:
    """Of its containers, by name, with the runtime's name before it."""
    return {one["name"]: one["containerID"] for one in pod["status"]["containerStatuses"]}


def test_the_api_takes_no_field_that_it_does_not_know(cluster: Cluster, helm: Helm) -> None:
    wrong = helm.template().replace("hostPID:", "hostPId:")
    told = cluster.apply(wrong, check=False)
    assert re.search(r'unknown field \W*spec\.template\.spec\.hostPId\b', told), told


def test_the_pod_is_admitted_and_ready(cluster: Cluster, traced: Object) -> None:
    assert traced["spec"]["nodeName"] == NODE
    statuses = {one["name"]: one for one in traced["status"]["containerStatuses"]}
    assert statuses.keys() == {"daemon", "exporter"}
    for one in statuses.values():
        assert one["ready"] and one["restartCount"] == 0, one
    [daemonset] = cluster.objects("daemonsets", NAMESPACE)
    assert daemonset["status"]["numberReady"] == daemonset["status"]["desiredNumberScheduled"] == 1


def test_it_runs_by_the_level_of_pod_security_that_is_documented(cluster: Cluster, traced: Object) -> None:
    """Its namespace says privileged; the next lower level would refuse it, for what docs/install.md names."""
    [namespace] = [one for one in cluster.objects("namespaces") if one["metadata"]["name"] == NAMESPACE]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    done = cluster.enter(cluster.programs["kubectl"], "--kubeconfig", cluster.kubeconfig("admin"), "label",
                         "--dry-run=server", "--overwrite", "namespace", NAMESPACE,
                         "pod-security.kubernetes.io/enforce=baseline")
    [warning] = re.findall(rf"{traced['metadata']['name']}: ([\w ,-]+)", done.stderr)
    assert set(warning.split(", ")) == {"host namespaces", "non-default capabilities"}


def test_it_keeps_no_capability(cluster: Cluster, traced: Object) -> None:
    """The kernel says so of the processes in its cgroups."""
    ids = [one.partition("://")[2] for one in container_ids(traced).values()]
    processes = [path for path in Path("/proc").glob("[0-9]*/cgroup") if any(one in read(path) for one in ids)]
    assert {read(path.with_name("comm")).strip() for path in processes} == {"nagletrace", "nagletrace-expo"}
    for path in processes:
        kept = re.findall(r"^Cap(?:Prm|Eff|Inh|Amb):\t(\w+)$", read(path.with_name("status")), re.MULTILINE)
        assert kept == ["0" * 16] * 4, read(path.with_name("status"))


def read(path: Path) -> str:
    """"" where the process is gone."""
    try:
        return path.read_text()
    except OSError:
        return ""


def metrics(cluster: Cluster, pod: Object) -> str:
    with cluster.network():
        return get(f"http://{pod['status']['podIP']}:10040/metrics")


def test_the_exporter_tells_the_container_and_the_pod(cluster: Cluster, traced: Object, checkout: Object) -> None:
    wanted = {"comm": "lab-client", "pod_uid": checkout["metadata"]["uid"],
              "container_id": container_ids(checkout)["lab"].partition("://")[2]}

    def named() -> bool:
        series = re.findall(r"^nagletrace_stalls_total\{(.*)\} (\S+)$", metrics(cluster, traced), re.MULTILINE)
        return any(wanted.items() <= dict(re.findall(r'(\w+)="([^"]*)"', labels)).items() and float(value) >= 3
                   for labels, value in series)

    wait_until(f"stalls of {wanted}", named, why=lambda: metrics(cluster, traced))


@pytest.fixture(scope="module")
def kube_state(cluster: Cluster) -> str:
    """The address of kube-state-metrics, which asks the API for pods as it does in a cluster."""
    try:
        program = go_modules.program("k8s.io/kube-state-metrics/v2", KUBE_STATE, ".")
    except Unavailable as reason:
        pytest.skip(str(reason))
    cluster.run_in_background(
        "kube-state-metrics", program, "--kubeconfig", cluster.kubeconfig("admin"), "--resources", "pods", "--host",
        "127.0.0.1", "--port", STATE, "--telemetry-host", "127.0.0.1", "--telemetry-port", STATE + 1)
    return f"127.0.0.1:{STATE}"


def query(cluster: Cluster, expression: str) -> list[Any]:
    with cluster.network():
        told = json.loads(get(f"http://127.0.0.1:{PROMETHEUS}/api/v1/query?"
                              + urllib.parse.urlencode({"query": expression})))
    found: list[Any] = told["data"]["result"]
    return found


def targets(cluster: Cluster) -> list[Object]:
    """What Prometheus finds by kubernetes_sd_configs, as far as the example asks; Debian's is built without that."""
    return [{"targets": [f"{pod['status']['podIP']}:{port['containerPort']}"], "labels": {
                "__meta_kubernetes_pod_label_app_kubernetes_io_name":
                    pod["metadata"]["labels"].get("app.kubernetes.io/name", ""),
                "__meta_kubernetes_pod_container_port_name": port["name"],
                "__meta_kubernetes_pod_node_name": pod["spec"]["nodeName"]}}
            for pod in cluster.objects("pods", NAMESPACE) for container in pod["spec"]["containers"]
            for port in container.get("ports", [])]


def test_the_rules_name_the_pod(cluster: Cluster, traced: Object, checkout: Object, kube_state: str) -> None:
    """A Prometheus with the example's job, and with kube-state-metrics."""
    directory = cluster.directory / "prometheus"
    directory.mkdir()
    for name in ("recording.yml", "alerts.yml"):
        (directory / name).write_text(compressed((RULES / name).read_text()))
    config = yaml.safe_load((RULES / "prometheus.kubernetes.example.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    [job] = config["scrape_configs"]
    assert job.pop("kubernetes_sd_configs")[0]["namespaces"] == {"names": [NAMESPACE]}
    job["static_configs"] = targets(cluster)
    config["scrape_configs"].append({"job_name": "kube-state-metrics", "honor_labels": True,
                                     "static_configs": [{"targets": [kube_state]}]})
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    cluster.run_in_background(
        "prometheus", "prometheus", "--config.file", directory / "prometheus.yml", "--storage.tsdb.path",
        directory / "data", "--web.listen-address", f"127.0.0.1:{PROMETHEUS}")

    def answers() -> bool:
        try:
            return bool(query(cluster, "up"))
        except OSError:
            return False

    wait_until("Prometheus answers", answers, why=cluster.story)
    for name in ("nagletrace_stalls_40ms", "nagletrace_stall_excess_seconds"):
        record = f"namespace_pod_container_comm:{name}:rate5m"
        wait_until(record, lambda: query(cluster, f'{record}{{comm="lab-client"}} > 0'), why=cluster.story)
        [one] = query(cluster, f'{record}{{comm="lab-client"}}')
        assert {key: one["metric"][key] for key in ("namespace", "pod", "container", "instance", "job")} == {
            "namespace": SHOP, "pod": "checkout", "container": "lab", "instance": NODE, "job": "nagletrace"}


def test_the_gadget_names_the_pod(cluster: Cluster, checkout: Object) -> None:
    """Inspektor Gadget asks containerd whose mount namespace it is that an event names."""
    try:
        archive = gadgets.build(gadgets.ROOT / "build" / "gadget")
    except Unavailable as reason:
        pytest.skip(str(reason))
    inside = ["nsenter", "-t", str(cluster.holder.pid), "-m", "-n", "unshare", "--mount", "--propagation", "private",
              "sh", "-euc", ENTER, "sh", str(cluster.directory / "lib"), str(archive.with_name("ig").resolve())]
    done = subprocess.run([*inside, "image", "import", archive], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    with Running([*inside, "run", gadgets.image(), "--verify-image=false", "--pull", "never", "--verbose", "--output",
                  "json", "--host", "--comm", "lab-client"]) as running:
        def of_pod() -> list[Any]:
            return [event for event in running.events() if event["proc"]["creds"]["uid"] == USER]

        told = running.wait_for(3, of_pod)
        places = {os.stat(f"/proc/{event['proc']['pid']}/ns/mnt").st_ino: read(Path(
            f"/proc/{event['proc']['pid']}/cgroup")) for event in told}
        running.stop()
    assert len(told) >= 3, running.errors.text()[-3000:]
    container = container_ids(checkout)["lab"].partition("://")[2]
    for event in told:
        assert container in places[event["proc"]["mntns_id"]]
    if why := re.search(r"Failed to create container-collection: .*(attaching kprobe \w+)", running.errors.text()):
        pytest.skip(f"ig's names of pods cannot be had: {why[1]} is refused by this kernel")
    for event in told:
        assert (event["k8s"]["namespace"], event["k8s"]["podName"], event["k8s"]["containerName"]) == (
            SHOP, "checkout", "lab")
        assert event["runtime"]["containerId"] == container


def test_the_machine_is_left_as_it_was(cluster: Cluster) -> None:
    """kubelet changes settings of the kernel, and all mount: in namespaces of their own. conftest.py asks once more
    when all has ended."""
    assert {name: Path("/proc/sys", name).read_text() for name in cluster.settings} == cluster.settings
    assert cluster.enter("cat", "/proc/sys/kernel/panic_on_oops").stdout == "1\n"
    assert str(cluster.directory) in Path(f"/proc/{cluster.holder.pid}/mountinfo").read_text()
    assert str(cluster.directory) not in Path("/proc/self/mountinfo").read_text()
    assert os.readlink("/proc/self/ns/net") != os.readlink(f"/proc/{cluster.holder.pid}/ns/net")
