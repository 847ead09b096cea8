# SPDX-License-Identifier: GPL-2.0
"""The decoder of records.py beside the schema that the tracer prints: neither knows a key that the other does not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from pages import HERE

from nagletrace_exporters.records import (
    Connection,
    Costs,
    End,
    Event,
    Frame,
    Hold,
    LastStall,
    Limits,
    PendingAck,
    Report,
    Series,
    SlowHolds,
    Snapshot,
    Stall,
    Standby,
    Start,
    Totals,
    decode,
    readers_of,
)

SCHEMA = json.loads((HERE.parent / "userspace" / "output" / "nagletrace.schema.json").read_text())
DEFS: dict[str, Any] = SCHEMA["$defs"]

#: By what `nagletrace-join` finds the other host's record of the same stall.
LINKS = ("ack_id", "host", "boot_id", "number")
#: Which shapes of the schema a class reads, and what of them no page needs.
SHAPES: dict[Any, tuple[tuple[str, ...], set[str]]] = {
    Hold: (("hold",), {"writes", "write_bytes", "sent_writes"}),
    PendingAck: (("pending_ack",), {"limit_us"}),
    Frame: (("frame",), set()),
    End: (("end",), {"tid", "options", "host"}),
    Stall: (("stall", "socket_record"), {"type", "family", "contradicted", *LINKS}),
    Connection: (("stalled",), {"family"}),
    Event: (("event",), {"type", "pid", "tid", "comm", "cgroup", "container_id", "pod_uid", "family", "options",
                         "events"}),
    Totals: (("totals",), set()),
    SlowHolds: (("slow_holds",), {"family", "mss", "window_bytes"}),
    Report: (("report",), {"type", "host", "boot_id", "number", "unseen", "untraced", "key_changed", "unnamed_stacks",
                          "detached_hooks", "standby", "groups", "behind"}),
    Start: (("start",), {"type", "schema", "time", "clock", "hooks_because", "timeline_cost", "host", "boot_id",
                         "ack_key", "late_acks", "holds"}),
    LastStall: (("last_stall",), {"netns", "family"}),
    Series: (("series",), set()),
    Standby: (("standby",), {"look_interval_us", "quiet_us"}),
    Limits: (("limits",), {"max_series", "max_connections"}),
    Costs: (("tracer",), {"limit_ppm", "streaming", "requests", "refused_requests"}),
    Snapshot: (("reply_snapshot", "identity"), {
        "type", "protocol", "uptime_us", "hooks_because", "untraced", "connections", "connections_span_us"}),
}
#: Words that keys leave to others: pending, excess, dropped, detached; and, as a whole key, release and reason.
BANNED = re.compile(r"(^|_)(owed|put_off|withheld|lost|let_go)(_|$)|^(end|why|cost)(_us)?$")


def keys_of(kind: Any, needed: bool = False) -> set[str]:
    """The keys that a class reads, or those that it cannot do without."""
    keys: set[str] = set()
    for name, read in readers_of(kind).items():
        if read.same_object:
            keys |= keys_of(read.shape, needed)
        elif read.needed or not needed:
            keys |= set(read.keys or (name,))
    return keys


def properties_of(node: Any) -> Iterator[tuple[str, Any]]:
    """All keys that are described anywhere in a part of the schema."""
    if isinstance(node, dict):
        yield from node.get("properties", {}).items() if isinstance(node.get("properties"), dict) else ()
        for value in node.values():
            yield from properties_of(value)
    elif isinstance(node, list):
        for value in node:
            yield from properties_of(value)


def refers_to(node: Any, name: str) -> bool:
    """Does a part of the schema lead to that shape?"""
    if isinstance(node, list):
        return any(refers_to(value, name) for value in node)
    if not isinstance(node, dict):
        return False
    to = str(node.get("$ref", "")).rpartition("/")[2]
    return to == name or (bool(to) and refers_to(DEFS[to], name)) or any(
        refers_to(value, name) for key, value in node.items() if key != "$ref")


@pytest.mark.parametrize("kind", SHAPES, ids=lambda kind: str(kind.__name__))
def test_each_key_of_the_schema_is_read_or_named_as_not_needed(kind: Any) -> None:
    shapes, not_needed = SHAPES[kind]
    described = {key for shape in shapes for key in DEFS[shape]["properties"]}
    assert keys_of(kind) | not_needed == described
    assert not keys_of(kind) & not_needed


@pytest.mark.parametrize("kind", SHAPES, ids=lambda kind: str(kind.__name__))
def test_what_the_decoder_cannot_do_without_is_always_there(kind: Any) -> None:
    required = {key for shape in SHAPES[kind][0] for key in DEFS[shape].get("required", ())}
    if kind is Event:  # one without room for it is read by recording.py
        required |= set(DEFS["event"]["else"]["required"])
    assert keys_of(kind, needed=True) <= required


def test_what_lies_under_a_key_has_the_shape_of_the_schema() -> None:
    looked_at = 0
    for kind, (shapes, _) in SHAPES.items():
        for name, read in readers_of(kind).items():
            if read.shape is None or read.same_object:
                continue
            [described] = [DEFS[shape]["properties"][name] for shape in shapes if name in DEFS[shape]["properties"]]
            assert refers_to(described, SHAPES[read.shape][0][0]), (kind, name)
            looked_at += 1
    assert looked_at >= 8


@pytest.mark.parametrize("module", ["recording.py", "source.py", "client.py"])
def test_whoever_reads_an_answer_without_the_decoder_reads_keys_of_the_schema(module: str) -> None:
    text = (HERE / "nagletrace_exporters" / module).read_text()
    of_answers = r"(?:snapshot|costs|counted|limits|record|series|answer)"
    keys = set(re.findall(rf'\b{of_answers}\["(\w+)"\]|\b{of_answers}\.get\("(\w+)"|\w_of\({of_answers}, "(\w+)"|'
                          rf'\w_(?:number|text|word)\({of_answers}, "(\w+)"|"(\w+)" in {of_answers}\b', text))
    found = {key for several in keys for key in several if key}
    assert found <= {key for key, _ in properties_of(SCHEMA)}, module
    assert found or module == "source.py"


def test_no_key_has_a_word_that_means_another_thing_or_nothing() -> None:
    keys = {key for key, _ in properties_of(SCHEMA)}
    assert {"excess_us", "dropped", "reason", "release", "pending_ack"} <= keys
    assert not {key for key in keys if BANNED.search(key)}


def test_what_other_hosts_join_by_is_in_the_schema() -> None:
    """tests/unit/test_json.c writes the same lines."""
    validator = jsonschema.Draft202012Validator(SCHEMA)
    lines = (HERE.parent / "tests" / "unit" / "joinable.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert [r["type"] for r in records] == ["stall", "stall", "late_ack"]
    for number, record in enumerate(records, 1):
        wrong = jsonschema.exceptions.best_match(validator.iter_errors(record))
        assert wrong is None, f"{wrong.message}: {record}"
        assert (record["ack_id"], record["host"], record["number"]) == ("0123456789abcdef", "web\\x0a1", number)


def test_what_the_tracer_writes_of_a_stall_is_in_the_schema_and_read() -> None:
    """tests/unit/test_json.c writes the same lines: by side, of both ends and of one, stalls and other holds."""
    validator = jsonschema.Draft202012Validator(SCHEMA)
    lines = (HERE.parent / "tests" / "unit" / "stalls.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert [(r["type"], r["side"]) for r in records] == [("stall", "sender"), ("stall", "receiver")] * 2 + [
        ("hold", "sender"), ("hold", "receiver")] * 2
    for record in records:
        wrong = jsonschema.exceptions.best_match(validator.iter_errors(record))
        assert wrong is None, f"{wrong.message}: {record}"
    both, of_receiver, inferred, late = [decode(Stall, record) for record in records if record["type"] == "stall"]
    assert both.own == both.sender and of_receiver.own == of_receiver.receiver == both.receiver
    assert (both.process.name(), both.peer and both.peer.name()) == ("java[4242]", "server[4200]")
    assert (of_receiver.process.name(), of_receiver.hold) == ("server[4200]", both.hold)
    assert both.pending_ack == of_receiver.pending_ack == late.pending_ack and both.hold == inferred.hold
    assert inferred.peer is None and inferred.pending_ack is None and late.hold is None
    assert inferred.socket == both.socket and late.socket == of_receiver.socket
