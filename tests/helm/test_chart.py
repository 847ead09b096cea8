# SPDX-License-Identifier: GPL-2.0
"""The Helm chart renders the manifest, and with values what they say; it refuses the others by name."""

from __future__ import annotations

import base64
import copy
import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from charts import CHART, DASHBOARDS, MANIFEST, ROOT, RULES, VALUES, Helm, Object, chosen, defaults, named

FILES = {path.name: path for path in (RULES / "recording.yml", RULES / "alerts.yml", *DASHBOARDS)}


def containers(daemonset: Object) -> dict[str, Object]:
    return {one["name"]: one for one in daemonset["spec"]["template"]["spec"]["containers"]}


def rendered(helm: Helm, name: str) -> dict[tuple[str, str], Object]:
    return named(helm.template(*chosen(name)))


# ---- what it renders ----


def test_without_values_it_renders_the_manifest(helm: Helm) -> None:
    of_chart, of_tree = rendered(helm, ""), named(MANIFEST.read_text())
    assert of_chart.keys() == of_tree.keys()
    for key, one in of_tree.items():
        assert of_chart[key] == one, key


@pytest.mark.parametrize("name", ["", *VALUES])
def test_lint_finds_nothing(helm: Helm, name: str) -> None:
    done = helm.run("lint", "--strict", CHART, *chosen(name))
    assert done.returncode == 0 and "0 chart(s) failed" in done.stdout, done.stdout + done.stderr
    assert not re.search(r"\[(WARNING|ERROR)\]", done.stdout), done.stdout


def put(values: Object, path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        values = values.setdefault(key, {})
    values[path[-1]] = value


def test_each_value_changes_what_is_rendered(helm: Helm, tmp_path: Path) -> None:
    """Setting it back to its default does, in one of the files of values."""
    files = {name: yaml.safe_load(path.read_text()) for name, path in VALUES.items()}
    whole = {name: named(helm.template(*chosen(name))) for name in files}
    idle = []
    for path, default in defaults().items():
        changes = False
        for name, values in files.items():
            back = copy.deepcopy(values)
            put(back, path, default)
            (tmp_path / "values.yaml").write_text(yaml.safe_dump(back))
            done = helm.run("template", "nagletrace", CHART, *chosen(""), "--values", tmp_path / "values.yaml")
            # what it refuses names the value
            changes |= named(done.stdout) != whole[name] if not done.returncode else ".".join(path) in done.stderr
        if not changes:
            idle.append(".".join(path))
    assert not idle


def test_a_daemon_and_an_exporter_have_their_options_images_and_resources(helm: Helm) -> None:
    values = yaml.safe_load(VALUES["everything"].read_text())
    both = containers(rendered(helm, "everything")["DaemonSet", "nagletrace"])
    assert both["daemon"]["command"] == ["/usr/sbin/nagletrace", "daemon", "--host", "$(NODE_NAME)", "--fleet-key",
                                         "/etc/nagletrace/fleet.key", "--standby", "--by-cgroup", "--stacks"]
    assert both["exporter"]["command"] == ["/usr/bin/nagletrace-exporter", "--otlp.endpoint",
                                           "https://collector.example:4318", "--otlp.config.file",
                                           "/etc/nagletrace/otlp.yml", "--metrics.exemplars"]
    node = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    for name, container in both.items():
        assert container["env"] == [node] + [{"name": "OTEL_RESOURCE_ATTRIBUTES",
                                              "value": "k8s.node.name=$(NODE_NAME)"}] * (name == "exporter")
        image = values[name]["image"]
        assert container["image"] == f"{image['repository']}@{image['digest']}"
        assert container["imagePullPolicy"] == "Always" and container["resources"] == values[name]["resources"]
    assert both["daemon"]["securityContext"]["capabilities"] == {"drop": ["ALL"],
                                                                 "add": values["daemon"]["capabilities"]}


def test_the_pods_are_placed_and_named_as_the_values_say(helm: Helm) -> None:
    values = yaml.safe_load(VALUES["everything"].read_text())
    daemonset = rendered(helm, "everything")["DaemonSet", "nagletrace"]
    metadata, spec = daemonset["spec"]["template"]["metadata"], daemonset["spec"]["template"]["spec"]
    for name in ("imagePullSecrets", "nodeSelector", "affinity", "tolerations", "priorityClassName",
                 "terminationGracePeriodSeconds"):
        assert spec[name] == values[name], name
    assert daemonset["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": values["maxUnavailable"]}
    assert metadata["labels"] == {"app.kubernetes.io/name": "nagletrace"} | values["labels"] | values["podLabels"]
    assert values["podAnnotations"].items() <= metadata["annotations"].items()


def test_the_policy_has_the_peers_and_rules_of_the_values(helm: Helm) -> None:
    values = yaml.safe_load(VALUES["everything"].read_text())["networkPolicy"]
    policy = rendered(helm, "everything")["NetworkPolicy", "nagletrace"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"] and policy["egress"] == values["egress"]
    assert [rule["from"] for rule in policy["ingress"]] == [values["from"]]
    [rule] = rendered(helm, "fleet")["NetworkPolicy", "nagletrace"]["spec"]["ingress"]
    assert rule.keys() == {"ports"}  # from everybody


@pytest.mark.parametrize("name", ["", *VALUES])
def test_both_containers_have_both_probes(helm: Helm, name: str) -> None:
    both = containers(rendered(helm, name)["DaemonSet", "nagletrace"])
    for container in both.values():
        assert {"livenessProbe", "readinessProbe"} <= container.keys()
    # a blind daemon is not ready; a restart would lose its counts
    assert both["daemon"]["readinessProbe"]["exec"]["command"][1:] == ["report", "--health"]
    assert both["daemon"]["livenessProbe"]["exec"]["command"][1:] == ["report", "--json"]


def test_each_container_reads_its_own_secrets_by_the_path_that_its_option_names(helm: Helm) -> None:
    objects = rendered(helm, "everything")
    daemonset = objects["DaemonSet", "nagletrace"]
    volumes = {one["name"]: one for one in daemonset["spec"]["template"]["spec"]["volumes"]}
    seen = {name: {mount["name"]: mount for mount in one["volumeMounts"]}
            for name, one in containers(daemonset).items()}
    assert seen["daemon"].keys() == {"run", "fleet-key"} and seen["exporter"].keys() == {"run", "otlp"}
    key = volumes["fleet-key"]["secret"]
    # nagletrace refuses a key that others may read; the exporter is not root, who owns the files
    assert key["defaultMode"] == 0o400 and volumes["otlp"]["secret"]["defaultMode"] == 0o444
    assert key["items"] == [{"key": "key", "path": "fleet.key"}]
    secret = objects["Secret", key["secretName"]]
    assert base64.b64decode(secret["data"]["key"]) == b"00112233445566778899aabbccddeeff"
    assert volumes["otlp"]["secret"]["secretName"] == "collector"
    for mount in (seen["daemon"]["fleet-key"], seen["exporter"]["otlp"]):
        assert mount["mountPath"] == "/etc/nagletrace" and mount["readOnly"]


def test_secrets_that_are_there_are_only_named(helm: Helm) -> None:
    objects = rendered(helm, "fleet")
    assert not any(kind == "Secret" for kind, _ in objects)
    [volume] = [one for one in objects["DaemonSet", "nagletrace"]["spec"]["template"]["spec"]["volumes"]
                if "secret" in one]
    assert volume["secret"]["secretName"] == "fleet"


def test_a_key_as_openssl_writes_it_is_taken(helm: Helm, tmp_path: Path) -> None:
    """docs/fleets.md makes one."""
    file = tmp_path / "fleet.key"
    subprocess.run(["openssl", "rand", "-hex", "-out", file, "16"], check=True)
    objects = named(helm.template("--set-file", f"fleetKey.value={file}"))
    assert base64.b64decode(objects["Secret", "nagletrace-fleet-key"]["data"]["fleet.key"]) == file.read_bytes()


def test_all_objects_are_in_the_namespace_that_the_values_or_the_release_name(helm: Helm) -> None:
    for name, wanted in (("everything", "tracing"), ("fleet", "releases")):
        objects = rendered(helm, name)
        assert {one["metadata"]["namespace"] for (kind, _), one in objects.items()
                if kind not in ("Namespace", "SecurityContextConstraints")} == {wanted}
        assert [name for kind, name in objects if kind == "Namespace"] == (["tracing"] if wanted == "tracing" else [])


def test_prometheus_finds_the_pods_and_their_port(helm: Helm) -> None:
    objects = rendered(helm, "everything")
    template = objects["DaemonSet", "nagletrace"]["spec"]["template"]
    monitor, policy = objects["PodMonitor", "nagletrace"], objects["NetworkPolicy", "nagletrace"]["spec"]
    for selector in (monitor["spec"]["selector"], policy["podSelector"],
                     objects["DaemonSet", "nagletrace"]["spec"]["selector"]):
        assert selector["matchLabels"].items() <= template["metadata"]["labels"].items()
    [port] = containers(objects["DaemonSet", "nagletrace"])["exporter"]["ports"]
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == port["name"] == policy["ingress"][0]["ports"][0]["port"]
    # as in the example for a Prometheus without an operator
    [job] = yaml.safe_load((RULES / "prometheus.kubernetes.example.yml").read_text())["scrape_configs"]
    moved = {one["target_label"]: one["source_labels"] for one in job["relabel_configs"] if "target_label" in one}
    rules = endpoint["relabelings"]
    assert {one["targetLabel"]: one["sourceLabels"] for one in rules if "sourceLabels" in one} == moved
    assert [one["replacement"] for one in rules if one["targetLabel"] == "job"] == [job["job_name"]]


# ---- what it reads from elsewhere in the tree ----


def test_rules_and_dashboards_are_those_of_the_tree(helm: Helm) -> None:
    objects = rendered(helm, "fleet")
    groups = [group for name in ("recording.yml", "alerts.yml")
              for group in yaml.safe_load((RULES / name).read_text())["groups"]]
    loaded = objects["PrometheusRule", "nagletrace"]["spec"]["groups"]
    commands = {rule["annotations"].pop("command") for group in loaded for rule in group["rules"]
                if "command" in rule.get("annotations", {})}
    assert commands == {
        "kubectl -n releases exec $(kubectl -n releases get pod -l app.kubernetes.io/name=nagletrace "
        "--field-selector 'spec.nodeName={{ $labels.instance }}' -o name | head -1) -c daemon -- nagletrace report"}
    for rule in (rule for group in groups for rule in group["rules"]):
        assert rule.get("annotations", {}).pop("command", "nagletrace report") == "nagletrace report"
    assert loaded == groups
    told = rendered(helm, "everything")["ConfigMap", "nagletrace-dashboards"]["data"]
    assert {name: json.loads(text) for name, text in told.items()} == {
        path.name: json.loads(path.read_text()) for path in DASHBOARDS}


def test_the_alerts_lead_to_where_the_values_say(helm: Helm, tmp_path: Path) -> None:
    groups = rendered(helm, "everything")["PrometheusRule", "nagletrace"]["spec"]["groups"]
    alerts = [rule["annotations"] for group in groups for rule in group["rules"] if "alert" in rule]
    pages = [alert["runbook_url"] for alert in alerts]
    links = [alert["dashboard"] for alert in alerts if "dashboard" in alert]
    assert pages and len(links) == (RULES / "alerts.yml").read_text().count("dashboard: '/d/") and all(
        link.startswith("https://grafana.example/d/nagletrace-connection?var-cluster=") for link in links)
    for page in pages:
        assert (ROOT / "docs" / "runbooks" / page.removeprefix("https://wiki.example/runbooks/")).exists(), page
    rules = tmp_path / "rules.yml"
    rules.write_text(yaml.safe_dump({"groups": groups}))
    done = subprocess.run(["promtool", "check", "rules", rules], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_has_the_files_that_the_chart_links_to(helm: Helm, tmp_path: Path) -> None:
    done = helm.run("package", CHART, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    [package] = tmp_path.glob("*.tgz")
    assert package.name == f"nagletrace-{(ROOT / 'VERSION').read_text().strip()}.tgz"
    with tarfile.open(package) as archive:
        for name, source in FILES.items():
            member = archive.extractfile(f"nagletrace/files/{name}")
            assert member and member.read() == source.read_bytes(), name
    apart = named(helm.run("template", "nagletrace", package, *chosen("everything")).stdout)
    assert apart == rendered(helm, "everything")


@pytest.mark.parametrize("value", ["prometheusRule.enabled", "dashboard.enabled"])
@pytest.mark.parametrize("links", ["dropped", "texts"])  # as git makes them where there are no links
def test_a_copy_that_has_lost_its_files_is_refused(value: str, links: str, helm: Helm, tmp_path: Path) -> None:
    shutil.copytree(CHART, tmp_path / "chart", symlinks=True)
    for path in (tmp_path / "chart" / "files").iterdir():
        leads = os.readlink(path)
        path.unlink()
        if links == "texts":
            path.write_text(leads)
    done = helm.run("template", "nagletrace", tmp_path / "chart", "--set", f"{value}=true")
    assert done.returncode and "files/ was copied without what its links lead to" in done.stderr, done.stdout


def test_the_chart_links_and_does_not_copy() -> None:
    assert {path.name: path.resolve() for path in (CHART / "files").iterdir() if path.is_symlink()} == FILES


def test_the_chart_has_the_version_of_the_tree() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = (ROOT / "VERSION").read_text().strip()
    assert (chart["version"], chart["appVersion"]) == (version, version)


# ---- what it refuses ----


def test_it_knows_each_option_of_the_daemon_that_it_does_not_set_itself(helm: Helm) -> None:
    lines = (ROOT / "packaging" / "completion" / "nagletrace.bash").read_text().splitlines()
    options = {line.split()[0] for line in lines if line.startswith("--") and "daemon" in line.split()[3:]}
    own = {"--socket", "--host", "--fleet-key", "--standby", "--help", "--version", "--json-schema"}
    own.add("--group")  # without CAP_CHOWN the daemon cannot give the socket to another group
    told = helm.refuses("--set", "daemon.options={--none}").partition("take one of")[2].splitlines()[0]
    known = set(re.findall(r"--[a-z0-9-]+", told))
    assert known == options - own


def test_it_knows_each_option_of_the_exporter_that_it_does_not_set_itself(helm: Helm) -> None:
    said = subprocess.check_output(["/usr/bin/python3", "-m", "nagletrace_exporters.exporter.main", "--help"],
                                   cwd=ROOT / "exporters", text=True)
    options = set(re.findall(r"^ +(?:-\w, )?(--[\w.-]+)", said, re.MULTILINE))
    own = {"--daemon.socket", "--web.config.file", "--web.listen-address", "--web.telemetry-path", "--otlp.endpoint",
           "--otlp.config.file", "--help", "--version"}
    told = helm.refuses("--set", "exporter.options={--none}").partition("take one of")[2].partition(", or otlp")[0]
    assert set(told.split()) == options - own


REFUSED = {
    "an unknown value": (["--set", "daemon.optoins={--by-cgroup}"], "'/daemon'.*'optoins' not allowed"),
    "an unknown room": (["--set", "deamon.options={--by-cgroup}"], "'deamon' not allowed"),
    "options as a text": (["--set", "daemon.options=--by-cgroup"], "'/daemon/options'.*got string, want array"),
    "an option that is none": (["--set", "daemon.options={--max-serise=5}"],
                               r"daemon\.options: --max-serise is no option"),
    "an option of the chart": (["--set", "daemon.options={--host=a}"],
                               r"daemon\.options: --host is no option .* or the chart's value for it; take one of"),
    "a path that no monitor asks": (["--set", "exporter.options={--web.telemetry-path=/m}"],
                                    r"exporter\.options: --web\.telemetry-path=/m: the chart has its own"),
    "a scrape over TLS, which probes do not speak": (
        ["--set", "exporter.options={--web.config.file=/web.yml}"],
        "exporter.options: --web.config.file=/web.yml: probes and monitors ask over http and without a password; leave "
        "it out, and name in networkPolicy.from who may scrape"),
    "a port that no probe asks": (["--set", "exporter.options={--web.listen-address=:1}"],
                                  r"exporter\.options: --web\.listen-address=:1: the chart has its own"),
    "an option of the exporter that is none": (["--set", "exporter.options={--metrics.exemplar}"],
                                               r"exporter\.options: --metrics\.exemplar is no option"),
    "an option that is a number": (["--set", "daemon.options={5}"], "'/daemon/options/0'.*got number, want string"),
    "a capability by its long name": (["--set", "daemon.capabilities={CAP_BPF}"],
                                      "'/daemon/capabilities/0'.*must be one of 'BPF', 'PERFMON'"),
    "a capability too few": (["--set", "daemon.capabilities={BPF}"], r"daemon\.capabilities: PERFMON is missing"),
    "an option without its capability": (["--set", "daemon.options={--max-overhead=1}"],
                                         r"daemon\.options: --max-overhead=1 needs SYS_ADMIN; add it to "
                                         r"daemon\.capabilities"),
    "standby and a limit of the cost": (
        ["--set", "daemon.options={--max-overhead=1},daemon.attach=standby,daemon.capabilities={SYS_ADMIN}"],
        r"daemon\.options: --max-overhead=1 does not go with daemon\.attach=standby"),
    "a time for standby without it": (["--set", "daemon.options={--standby-after=10m}"],
                                      r"daemon\.options: --standby-after=10m is for daemon\.attach=standby"),
    "a tag that is a number": (["--set", "daemon.image.tag=1"], "'/daemon/image/tag'.*got number, want string"),
    "a digest cut short": (["--set", "exporter.image.digest=sha256:12"], "'/exporter/image/digest'.*pattern"),
    "a policy in lower case": (["--set", "daemon.image.pullPolicy=always"],
                               "'/daemon/image/pullPolicy'.*must be one of '', 'Always', 'IfNotPresent', 'Never'"),
    "a memory with a wrong unit": (["--set", "daemon.resources.limits.memory=128MB"],
                                   "'/daemon/resources/limits/memory'.*'128MB' does not match pattern"),
    "an endpoint without http": (["--set", "otlp.endpoint=collector:4318"],
                                 "'/otlp/endpoint'.*'collector:4318' does not match pattern"),
    "credentials for no receiver": (["--set", "otlp.secretName=token"],
                                    r"otlp\.secretName: token is for a receiver; give otlp\.endpoint too"),
    "a queue for no receiver": (["--set", "exporter.options={--otlp.queue-mib=4}"],
                                r"exporter\.options: --otlp\.queue-mib=4 is for a receiver; give otlp\.endpoint too"),
    "a key of half a length": (["--set-string", "fleetKey.value=00112233"], "'/fleetKey/value'.*pattern"),
    "two keys": (["--set-string", f"fleetKey.value={'0' * 32}", "--set", "fleetKey.secretName=fleet"],
                 r"fleetKey: value and secretName \(fleet\) are both given"),
    "a receiver that the policy shuts off": (["--set", "networkPolicy.enabled=true,otlp.endpoint=http://a:4318"],
                                             r"networkPolicy\.egress: no rule .* \(http://a:4318\)"),
    "a switch as a text": (["--set-string", "podMonitor.enabled=yes"],
                           "'/podMonitor/enabled'.*got string, want boolean"),
    "an interval without a unit": (["--set-string", "podMonitor.interval=30"], "'/podMonitor/interval'.*pattern"),
    "runbooks at no address": (["--set", "prometheusRule.runbooks=wiki/runbooks"], "'/prometheusRule/runbooks'"),
    "a namespace that is no name": (["--set", "namespace.name=Net_Ops"], "'/namespace/name'.*'Net_Ops'.*pattern"),
    "no namespace": (["--set", "namespace.name="], "'/namespace/name'.*'' does not match pattern"),
    "the release's own namespace": (["-n", "nagletrace"], r"namespace\.create: the namespace nagletrace is the "
                                    r"release's own.*--set namespace\.create=false"),
    "more than all nodes": (["--set", "maxUnavailable=110%"], "'/maxUnavailable'.*'110%'"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_bad_value_is_refused_by_name(helm: Helm, what: str) -> None:
    arguments, wanted = REFUSED[what]
    said = helm.refuses(*arguments)
    assert re.search(wanted, said), said


def test_the_schema_knows_the_values_and_no_others() -> None:
    def paths(schema: Object, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
        if "$ref" in schema:
            schema = whole["definitions"][schema["$ref"].rsplit("/", 1)[1]]
        inner = schema.get("properties")
        if not inner:
            return {path}
        return set().union(*(paths(one, (*path, name)) for name, one in inner.items()))

    whole = json.loads((CHART / "values.schema.json").read_text())
    # `global` is helm's own
    assert paths(whole) - {("global",)} == defaults().keys()
