# SPDX-License-Identifier: GPL-2.0
"""From the daemon's snapshot to the exposition."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fake_daemon import (
    BOUNDS_MS,
    DROPPED,
    REASONS,
    FakeDaemon,
    Snapshot,
    last_stall,
    series,
    snapshot,
    standby,
)
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from test_words import MANUAL, exposition

from nagletrace_exporters.exporter.collector import NagletraceCollector

ROOT = Path(__file__).parent.parent.parent
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def registry_of(path: Path, timeout_s: float = 5.0, exemplars: bool = False) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(NagletraceCollector(path, timeout_s, exemplars=exemplars))
    return registry


def scrape(path: Path, **options: Any) -> Samples:
    """What a scrape gives, as Prometheus reads it: by name and labels."""
    text = generate_latest(registry_of(path, **options)).decode()
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples, f"twice: {key}"
            samples[key] = sample.value
    return samples


def of(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def scraped(tmp_path: Path, answer: Snapshot, **options: Any) -> Samples:
    with FakeDaemon(tmp_path / "s", answer) as daemon:
        return scrape(daemon.path, **options)


#: In no container.
NOWHERE = {"container_id": "", "pod_uid": ""}
LABELS = {"cause": "nagle_delayed_ack", "reason": "", "side": "sender", "evidence": "seen", "comm": "java"}


def test_the_fake_daemon_speaks_as_the_schema_says() -> None:
    schema = json.loads((ROOT / "userspace" / "output" / "nagletrace.schema.json").read_text())
    apart = series(None, [1.0], cause="delayed_ack", reason="linger", cgroup="/a", container_id="a" * 64)
    jsonschema.validate(snapshot(series("java", [40.1]), apart, stalled(40.0)), schema)


def test_a_snapshot_becomes_the_metrics_of_the_contract(tmp_path: Path) -> None:
    answer = snapshot(series("java", [40.2, 41.0, 205.0]), series("java", [44.0], cause="delayed_ack", reason="sndbuf"))
    answer["totals"]["holds"]["cork"] = 7
    answer["totals"]["hold_us"]["cork"] = 1_400_000
    answer["totals"]["delayed_acks"]["timer"] = 3
    answer["dropped"]["ring_full"] = 2
    samples = scraped(tmp_path, answer)
    assert of(samples, "nagletrace_up") == 1
    assert of(samples, "nagletrace_stalls_total", **LABELS) == 3
    assert of(samples, "nagletrace_stall_excess_seconds_total", **LABELS) == pytest.approx(0.25758)
    assert of(samples, "nagletrace_stall_seconds_count", **LABELS) == 3
    assert of(samples, "nagletrace_stall_seconds_sum", **LABELS) == pytest.approx(0.2862)
    assert of(samples, "nagletrace_stalls_total", **LABELS | {"cause": "delayed_ack", "reason": "sndbuf"}) == 1
    assert of(samples, "nagletrace_holds_total", reason="cork") == 7
    assert of(samples, "nagletrace_hold_seconds_total", reason="cork") == pytest.approx(1.4)
    assert of(samples, "nagletrace_delayed_acks_total", release="timer") == 3
    assert of(samples, "nagletrace_writes_total") == 100
    assert of(samples, "nagletrace_dropped_records_total", where="ring_full") == 2
    assert of(samples, "nagletrace_tracer_cpu_seconds_total", part="daemon") == pytest.approx(0.0015)
    assert of(samples, "nagletrace_hooks_info", hooks="function", missing="") == 1
    assert of(samples, "nagletrace_build_info", version="0.1.0") == 1
    assert of(samples, "nagletrace_start_time_seconds") == 1795248000
    assert of(samples, "nagletrace_scrape_duration_seconds") >= 0


def test_what_a_limit_of_overhead_did_is_told(tmp_path: Path) -> None:
    names = {name for name, _ in scraped(tmp_path, snapshot())}
    assert "nagletrace_detached_hooks" in names and "nagletrace_tracer_bpf_cpu_ratio" not in names
    answer = snapshot()
    answer["detached_hooks"] = ["tcp_rcv_space_adjust"]
    answer["tracer"] |= {"share_ppm": 12_500, "limit_ppm": 10_000}
    jsonschema.validate(answer, json.loads((ROOT / "userspace" / "output" / "nagletrace.schema.json").read_text()))
    samples = scraped(tmp_path, answer)
    assert of(samples, "nagletrace_detached_hooks") == 1
    assert of(samples, "nagletrace_tracer_bpf_cpu_ratio") == pytest.approx(0.0125)


def test_what_nobody_saw_is_told_where_it_is_known(tmp_path: Path) -> None:
    names = {name for name, _ in scraped(tmp_path, snapshot())}
    assert "nagletrace_contradicted_stalls_total" in names and "nagletrace_unseen_delayed_acks_total" not in names
    answer = snapshot()
    answer["unseen"] = 0
    answer["totals"]["contradicted"] = 5
    jsonschema.validate(answer, json.loads((ROOT / "userspace" / "output" / "nagletrace.schema.json").read_text()))
    samples = scraped(tmp_path, answer)
    assert of(samples, "nagletrace_unseen_delayed_acks_total") == 0
    assert of(samples, "nagletrace_contradicted_stalls_total") == 5
    answer["kept"] = {"TCP_NODELAY": 2, "TCP_BPF_DELACK_MAX": 0}
    assert of(scraped(tmp_path, answer), "nagletrace_kept_remedies", option="TCP_NODELAY") == 2
    answer["unseen"] = 17
    assert of(scraped(tmp_path, answer), "nagletrace_unseen_delayed_acks_total") == 17


def test_a_daemon_that_does_not_say_whether_it_filters_is_not_called_one_that_does_not(tmp_path: Path) -> None:
    assert "nagletrace_filtered" not in {name for name, _ in scraped(tmp_path, snapshot())}
    for filtered in (False, True):
        assert of(scraped(tmp_path, {**snapshot(), "filtered": filtered}), "nagletrace_filtered") == filtered


def test_the_state_of_standby_is_told_with_what_looks_estimate(tmp_path: Path) -> None:
    assert not {name for name, _ in scraped(tmp_path, snapshot()) if re.search("state|attach|look|sampled", name)}
    answer = snapshot(series("java", [40.0]))
    answer["standby"] = standby()
    jsonschema.validate(answer, json.loads((ROOT / "userspace" / "output" / "nagletrace.schema.json").read_text()))
    samples = scraped(tmp_path, answer)
    assert of(samples, "nagletrace_attached") == 0
    assert of(samples, "nagletrace_state_start_time_seconds") == 1795248004
    assert of(samples, "nagletrace_state_seconds_total", state="standby") == 8
    assert of(samples, "nagletrace_state_seconds_total", state="attached") == 2.5
    for name, value in {"state_changes": 2, "false_alarms": 1, "attach_failures": 3, "looks": 16,
                        "look_cpu_seconds": 0.004, "sampled_excess_seconds": 0.75}.items():
        assert of(samples, f"nagletrace_{name}_total") == value
    # it is told apart from what was counted
    assert of(samples, "nagletrace_stall_excess_seconds_total", **LABELS) == 0.036
    answer["standby"]["state"] = "attached"
    assert of(scraped(tmp_path, answer), "nagletrace_attached") == 1


@pytest.mark.parametrize("wrong", [{"state": "asleep"}, {"since": "yesterday"}, {"looks": -1}, {"changes": "2"},
                                   {"sampled_excess_us": None}], ids=str)
def test_a_state_that_makes_no_sense_is_no_answer(tmp_path: Path, wrong: dict[str, Any]) -> None:
    answer = snapshot()
    answer["standby"] = standby(**wrong)
    samples = scraped(tmp_path, answer)
    assert of(samples, "nagletrace_up") == 0 and not any("state" in name for name, _ in samples)


def test_stacks_that_stayed_without_names_are_told_by_a_daemon_that_names_them(tmp_path: Path) -> None:
    assert "nagletrace_unnamed_stacks_total" not in {name for name, _ in scraped(tmp_path, snapshot())}
    answer = snapshot()
    answer["unnamed_stacks"] = {"worker_died": 0, "deadline": 3, "limit": 0, "busy": 1, "gone": 0}
    jsonschema.validate(answer, json.loads((ROOT / "userspace" / "output" / "nagletrace.schema.json").read_text()))
    samples = scraped(tmp_path, answer)
    for reason, count in answer["unnamed_stacks"].items():
        assert of(samples, "nagletrace_unnamed_stacks_total", reason=reason) == count


def test_known_label_values_are_there_from_the_start(tmp_path: Path) -> None:
    samples = scraped(tmp_path, snapshot())
    assert {of(samples, "nagletrace_holds_total", reason=reason) for reason in REASONS} == {0}
    assert of(samples, "nagletrace_delayed_acks_total", release="timer") == 0
    assert {of(samples, "nagletrace_dropped_records_total", where=where) for where in DROPPED} == {0}


@pytest.mark.parametrize("bound", BOUNDS_MS)
def test_buckets_are_right_inclusive_cumulative_and_complete(tmp_path: Path, bound: int) -> None:
    samples = scraped(tmp_path, snapshot(series("java", [bound - 0.001, bound, bound + 0.001])))
    buckets = {float(dict(labels)["le"]): value for (name, labels), value in samples.items()
               if name == "nagletrace_stall_seconds_bucket"}
    assert sorted(buckets) == [*(b / 1000 for b in BOUNDS_MS), float("inf")]
    for le, value in buckets.items():
        assert value == sum(d <= le * 1000 for d in (bound - 0.001, bound, bound + 0.001)) or \
            (le == float("inf") and value == 3)


@pytest.mark.parametrize("comm", ["a\"b", "a\\b", "a\\x0ab", "{}", "é", "\\xff", "a,b=\"c\"", "",
                                  "# HELP x", "\u202e", "💥"])
def test_any_name_gives_valid_exposition(tmp_path: Path, comm: str) -> None:
    with FakeDaemon(tmp_path / "s", snapshot(series(comm, [40.0]))) as daemon:
        registry = registry_of(daemon.path)
        text, openmetrics = generate_latest(registry).decode(), generate_openmetrics(registry).decode()
    for families in (text_string_to_metric_families(text), parse_openmetrics(openmetrics)):
        names = {s.labels["comm"] for f in families for s in f.samples if s.name == "nagletrace_stalls_total"}
        assert names == {comm if comm != "\u202e" else "\\x202e"}, "no direction of text is turned"


def test_promtool_has_nothing_to_say(tmp_path: Path) -> None:
    with FakeDaemon(tmp_path / "s", snapshot(series("ja\"va", [40.0]), series(None, [1.0]))) as daemon:
        text = generate_latest(registry_of(daemon.path))
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_cgroups_are_told_apart_where_the_daemon_does(tmp_path: Path) -> None:
    """A sum over them would go down when the daemon forgets one: a reset, to Prometheus."""
    samples = scraped(tmp_path, snapshot(series("java", [40.0, 41.0], cgroup="/a"),
                                         series("java", [205.0], cgroup="/b"),
                                         series(None, [3.0], cgroup="/b")))
    assert of(samples, "nagletrace_stalls_total", **LABELS, **NOWHERE, cgroup="/a") == 2
    assert of(samples, "nagletrace_stalls_total", **LABELS, **NOWHERE, cgroup="/b") == 1
    assert of(samples, "nagletrace_stall_seconds_bucket", **LABELS, **NOWHERE, cgroup="/b", le="0.25") == 1
    assert of(samples, "nagletrace_stalls_total", **{**LABELS, "comm": "unknown"}, **NOWHERE, cgroup="/b") == 1


def test_a_process_named_unknown_is_told_from_those_without_a_name(tmp_path: Path) -> None:
    """A sum over both would go down when the daemon forgets one of them."""
    samples = scraped(tmp_path, snapshot(series("unknown", [40.0, 41.0]), series(None, [3.0])))
    for comm, stalls in (("unknown", 1), ("unknown (so named)", 2)):
        assert of(samples, "nagletrace_stalls_total", **{**LABELS, "comm": comm}) == stalls


@pytest.mark.parametrize("byte", ["\\x01", ","])
def test_the_longest_names_cost_no_other_series_anything(tmp_path: Path, byte: str) -> None:
    """The daemon escapes a byte by four characters; a comma makes a snapshot look as if it had more values."""
    longest = [{**series(byte * 16, [40.0], cause="delayed_ack", reason="handshake", side="receiver",
                         cgroup=f"{byte * 252}{number:04}", container_id="a" * 64, pod_uid="b" * 36),
                "duration_us": 1 << 50, "excess_us": 1 << 50, "buckets": [1 << 60] * len(BOUNDS_MS),
                "last": last_stall(40.0)} for number in range(1000)]
    answer = json.dumps(snapshot(*longest, longest[0]), separators=(",", ":")).encode() + b"\n"
    with FakeDaemon(tmp_path / "s", answer) as daemon:
        families = {family.name: family for family in NagletraceCollector(daemon.path, 5.0, exemplars=True).collect()}
    samples = families["nagletrace_stalls"].samples
    cgroups = {sample.labels["cgroup"]: sample.value for sample in samples}
    assert len(samples) == len(cgroups) == 1000 and sorted(cgroups.values())[-2:] == [1, 2]
    assert max(map(len, cgroups)) == 256


def test_containers_and_pods_are_told_apart_with_cgroups(tmp_path: Path) -> None:
    first, second = "a" * 64, "b" * 64
    uid = "3f2a91c4-6b0e-4d7a-9c35-d1e8f0a2b467"
    samples = scraped(tmp_path, snapshot(series("java", [40.0, 41.0], cgroup="/", container_id=first, pod_uid=uid),
                                         series("java", [40.0], cgroup="/", container_id=second),
                                         series("java", [205.0], cgroup="/")))
    here = {**LABELS, "cgroup": "/"}
    assert of(samples, "nagletrace_stalls_total", **here, container_id=first, pod_uid=uid) == 2
    assert of(samples, "nagletrace_stalls_total", **here, container_id=second, pod_uid="") == 1
    assert of(samples, "nagletrace_stall_seconds_bucket", **here, container_id="", pod_uid="", le="0.25") == 1
    answer = snapshot(series("java", [40.0], container_id=first, pod_uid=uid))
    assert of(scraped(tmp_path, answer), "nagletrace_stalls_total", **LABELS) == 1, "not without --by-cgroup"


def stalled(duration_ms: float) -> dict[str, Any]:
    return {**series("java", [duration_ms]), "last": last_stall(duration_ms)}


def exemplars_of(tmp_path: Path, answer: Snapshot, asked_for: bool = True) -> dict[str, Any]:
    """Those of an exposition, by `le`; the classic format has none."""
    with FakeDaemon(tmp_path / "s", answer) as daemon:
        registry = registry_of(daemon.path, exemplars=asked_for)
        openmetrics, classic = generate_openmetrics(registry).decode(), generate_latest(registry).decode()
        assert all(request.get("last", False) == asked_for for request in daemon.requests)
    assert "51234" not in classic and " # {" not in classic
    samples = [sample for family in parse_openmetrics(openmetrics) for sample in family.samples]
    assert all(sample.name == "nagletrace_stall_seconds_bucket" for sample in samples if sample.exemplar)
    return {sample.labels["le"]: sample.exemplar for sample in samples if sample.exemplar}


@pytest.mark.parametrize(("duration_ms", "le"), [(0.5, "0.001"), (40.0, "0.04"), (40.312, "0.045"), (2000.1, "+Inf")])
def test_the_last_stall_is_an_exemplar_of_its_bucket(tmp_path: Path, duration_ms: float, le: str) -> None:
    [(bucket, exemplar)] = exemplars_of(tmp_path, snapshot(stalled(duration_ms))).items()
    assert bucket == le
    assert exemplar.labels == {"pid": "4242", "local": "10.0.0.1:51234", "remote": "10.0.0.2:8000", "bytes": "7"}
    assert exemplar.value == pytest.approx(duration_ms / 1000)
    assert float(exemplar.timestamp) == 1795248009.5


def test_no_process_no_address_and_no_port_are_told_to_who_did_not_ask_for_exemplars(tmp_path: Path) -> None:
    assert exemplars_of(tmp_path, snapshot(stalled(40.0)), asked_for=False) == {}


def test_an_exemplar_has_at_most_128_characters_of_labels(tmp_path: Path) -> None:
    answer = snapshot(stalled(40.0))
    longest = "[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]:65535"
    answer["series"][0]["last"] |= {"pid": 4194304, "local": longest, "remote": longest, "family": 6}
    [exemplar] = exemplars_of(tmp_path, answer).values()
    assert set(exemplar.labels) == {"pid", "local", "remote"}
    assert sum(len(name) + len(value) for name, value in exemplar.labels.items()) <= 128
    del answer["series"][0]["last"]["pid"]
    [exemplar] = exemplars_of(tmp_path, answer).values()
    assert set(exemplar.labels) == {"local", "remote", "bytes"}


def test_a_series_without_a_last_stall_has_no_exemplar_and_a_wrong_one_is_no_answer(tmp_path: Path) -> None:
    answer = snapshot(series("java", [40.0]))
    assert exemplars_of(tmp_path, answer) == {}
    for wrong in (7, [], {}, {**last_stall(40.0), "local": 7}, {**last_stall(40.0), "time": "now"}):
        answer["series"][0]["last"] = wrong
        assert of(scraped(tmp_path, answer, exemplars=True), "nagletrace_up") == 0, wrong


def test_without_the_daemon_it_says_so_and_nothing_stale(tmp_path: Path) -> None:
    path = tmp_path / "s"
    registry = registry_of(path)

    def names() -> dict[str, float]:
        return {s.name: s.value for f in text_string_to_metric_families(generate_latest(registry).decode())
                for s in f.samples}

    assert names()["nagletrace_up"] == 0
    with FakeDaemon(path, snapshot(series("java", [40.0]))):
        assert names()["nagletrace_up"] == 1 and names()["nagletrace_stalls_total"] == 1
    gone = names()
    assert gone["nagletrace_up"] == 0
    assert set(gone) == {"nagletrace_up", "nagletrace_exporter_build_info", "nagletrace_scrape_duration_seconds"}
    with FakeDaemon(path, snapshot(series("java", []), started="2026-11-21T09:00:00.000000Z")):
        assert names()["nagletrace_stalls_total"] == 0, "a daemon that began anew begins at zero"


def test_the_manual_page_has_all_metrics_and_no_other(tmp_path: Path) -> None:
    named = re.findall(r"^\.It Li (nagletrace_\w+)$", MANUAL.read_text(), re.MULTILINE)
    types = re.findall(r"^# TYPE (\w+) ", exposition(tmp_path), re.MULTILINE)
    assert len(named) == len(set(named)) and set(named) == {re.sub(r"_created$", "", name) for name in types}


@pytest.mark.parametrize("answer", [
    b"", b"{", b"null\n", b"[]\n", b"\xff\xfe\n", b'{"type":"snapshot"}\n', b'{"type":"snapshot","protocol":2}\n',
    b'{"type":"snapshot","protocol":1}\n', b'{"type":"error","protocol":1,"error":"no"}\n',
    json.dumps({**snapshot(), "series": [{}]}).encode() + b"\n",
    json.dumps({**snapshot(), "totals": 7}).encode() + b"\n",
    json.dumps({**snapshot(), "started": "yesterday"}).encode() + b"\n",
    *(json.dumps({key: value for key, value in snapshot().items() if key != missing}).encode() + b"\n"
      for missing in ("series", "dropped", "missing_hooks", "by_cgroup", "bounds_us", "totals", "limits", "tracer")),
    json.dumps({**snapshot(), "totals": {**snapshot()["totals"], "holds": None}}).encode() + b"\n",
    json.dumps({**snapshot(), "detached_hooks": [None]}).encode() + b"\n",
])
def test_an_answer_that_is_none_means_down(tmp_path: Path, answer: bytes) -> None:
    with FakeDaemon(tmp_path / "s", answer) as daemon:
        samples = scrape(daemon.path)
    assert of(samples, "nagletrace_up") == 0
    assert {name for name, _ in samples} == {"nagletrace_up", "nagletrace_exporter_build_info",
                                             "nagletrace_scrape_duration_seconds"}


def test_a_daemon_that_hangs_means_down_in_time(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen(1)  # connects, and is never answered
        samples = scrape(tmp_path / "s", timeout_s=0.3)
    assert of(samples, "nagletrace_up") == 0
    assert 0.3 <= of(samples, "nagletrace_scrape_duration_seconds") < 20


def test_five_thousand_label_sets_are_what_the_daemon_makes_of_them(tmp_path: Path) -> None:
    """The daemon keeps a thousand and counts the rest as other; here a scrape of so many is only a matter of time."""
    answer = snapshot(*(series(f"p{i}", [40.0]) for i in range(1000)), series("other", [40.0] * 4000))
    samples = scraped(tmp_path, answer)
    counts = [value for (name, _), value in samples.items() if name == "nagletrace_stalls_total"]
    assert len(counts) == 1001 and sum(counts) == 5000
