# SPDX-License-Identifier: GPL-2.0
"""Makes log records of OpenTelemetry (OTLP, JSON encoding) of the daemon's stalls, late ACKs and late holds.

Each value of a record becomes an attribute, named by its path in the record under `nagletrace.`. What OpenTelemetry's
semantic conventions have a name for has that name too, as our own end of the connection sees it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ... import __version__
from ...records import (
    MAX_ADDRESS,
    MAX_COMM,
    MAX_CONTAINER,
    MAX_TEXT,
    BadRecord,
    Json,
    needed_number,
    needed_text,
    needed_word,
    number_of,
    object_of,
    printable,
    process_name,
    stack_of,
    text_of,
    time_of,
)

SERVICE = "nagletrace"
MACHINE_ID = Path("/etc/machine-id")
#: OpenTelemetry's numbers and words of severity. A late ACK is no stall by itself, nor is a hold.
SEVERITY = {"stall": (13, "WARN"), "hold": (9, "INFO"), "late_ack": (9, "INFO")}
#: The most attributes of a record's own; the schema's largest has some 50. Receivers cut at 128.
MAX_ATTRIBUTES = 96
#: The depth of the deepest value of a record: `receiver.pending_ack.reason`.
MAX_DEPTH = 3
#: These have names of OpenTelemetry's alone.
ELSEWHERE = {"type", "time", "stack"}
KEY = re.compile(r"[a-z][a-z0-9_]{0,63}")
ADDRESS = re.compile(r"(?:\[([0-9a-f:.]+)\]|([0-9.]+)):(\d{1,5})")
#: Which part of the process at our end becomes which attribute.
PROCESS = {"pid": "process.pid", "tid": "thread.id"}
PROCESS_TEXTS = {"comm": ("process.executable.name", MAX_COMM), "cgroup": ("process.linux.cgroup", MAX_TEXT),
                 "container_id": ("container.id", MAX_CONTAINER), "pod_uid": ("k8s.pod.uid", MAX_CONTAINER)}


def encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def attribute(key: str, value: Any) -> dict[str, Any]:
    """Raises BadRecord for what is no text, truth or whole number of 64 bits, nor lines that stack_of() has checked."""
    if isinstance(value, tuple):
        return {"key": key, "value": {"stringValue": "\n".join(value)}}
    if isinstance(value, bool):
        return {"key": key, "value": {"boolValue": value}}
    if isinstance(value, str):
        return {"key": key, "value": {"stringValue": printable(value[:MAX_TEXT])}}
    if isinstance(value, int) and abs(value) < 1 << 63:
        return {"key": key, "value": {"intValue": str(value)}}  # as the encoding has 64 bits: in quotes
    raise BadRecord(f"{key} is no text, truth or number")


def resource_of(streaming: Json, given: dict[str, str]) -> bytes:
    """Returns the resource that the daemon's `streaming` names: who observed all records that follow. `given` comes
    from the administrator, and goes first."""
    boot_id = text_of(streaming, "boot_id")
    found = {"service.name": SERVICE, "service.version": __version__, "service.instance.id": boot_id,
             "host.name": text_of(streaming, "host"), "host.id": machine_id(), "nagletrace.boot_id": boot_id,
             **{f"nagletrace.{key}": text_of(streaming, key) for key in ("ack_key", "late_acks", "holds")}, **given}
    return encoded({"attributes": [attribute(key, value) for key, value in found.items() if value is not None]})


def machine_id() -> str | None:
    """Returns the host's ID as machine-id(5) has it; a container has none."""
    try:
        text = MACHINE_ID.read_text("ascii").strip()
    except (OSError, ValueError):
        return None
    return text if re.fullmatch(r"[0-9a-f]{32}", text) else None


def log_record_of(record: Json, observed_ns: int) -> bytes:
    """Returns a `stall`, a `hold` or a `late_ack` as a log record. Raises BadRecord if it is of another shape."""
    kind = needed_word(record, "type")
    number, word = SEVERITY[kind]
    side = "receiver" if kind == "late_ack" else needed_word(record, "side")
    if side not in ("sender", "receiver"):
        raise BadRecord("side is neither sender nor receiver")
    far = "receiver" if side == "sender" else "sender"
    own_end, far_end = object_of(record, side), object_of(record, far)
    if own_end is None or far_end is None:
        raise BadRecord("an end is missing")
    named = {**network(record, own_end, far_end), **process(own_end)}
    values = dict(leaves(record, "nagletrace", MAX_DEPTH))
    if len(values) > MAX_ATTRIBUTES:
        raise BadRecord(f"more than {MAX_ATTRIBUTES} values")
    attributes = [attribute(key, value) for key, value in named.items()]
    attributes += [attribute(key, value) for key, value in values.items()]
    return encoded({
        "timeUnixNano": str(time_of(record) * 1000), "observedTimeUnixNano": str(observed_ns),
        "severityNumber": number, "severityText": word, "eventName": f"nagletrace.{kind}",
        "body": {"stringValue": sentence(record, kind, side, own_end, far_end)}, "attributes": attributes})


def leaves(part: Json, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, value in part.items():
        if not KEY.fullmatch(key):
            raise BadRecord("a key is no word")
        if key in ELSEWHERE:
            continue
        if not isinstance(value, dict):
            yield f"{path}.{key}", value
        elif depth == 1:
            raise BadRecord(f"{key} lies too deep")
        else:
            yield from leaves(value, f"{path}.{key}", depth - 1)


def network(record: Json, own_end: Json, far_end: Json) -> dict[str, Any]:
    family = needed_number(record, "family")
    if family not in (4, 6):
        raise BadRecord("family is neither 4 nor 6")
    found: dict[str, Any] = {"network.transport": "tcp", "network.type": f"ipv{family}"}
    for name, end in (("local", own_end), ("peer", far_end)):
        match = ADDRESS.fullmatch(needed_text(end, "address", MAX_ADDRESS))
        if not match:
            raise BadRecord("address is none")
        found[f"network.{name}.address"] = match[1] or match[2]
        found[f"network.{name}.port"] = int(match[3])
    return found


def process(end: Json) -> dict[str, Any]:
    """Returns what is known of the process at an end, under OpenTelemetry's names."""
    found: dict[str, Any] = {name: number_of(end, key) for key, name in PROCESS.items()}
    found.update({name: text_of(end, key, most) for key, (name, most) in PROCESS_TEXTS.items()})
    found = {name: value for name, value in found.items() if value is not None}
    frames = stack_of(end, "stack")
    if frames:
        found["code.stacktrace"] = tuple(
            frame.symbol or (f"{frame.module}+{frame.offset}" if frame.module else hex(frame.ip)) for frame in frames)
    return found


def sentence(record: Json, kind: str, side: str, own_end: Json, far_end: Json) -> str:
    """Says the record to a person on one line."""
    name = process_name(text_of(own_end, "comm", MAX_COMM), number_of(own_end, "pid"))
    arrow = "->" if side == "sender" else "<-"
    ends = f"{name} {own_end['address']} {arrow} {far_end['address']}"
    if kind == "late_ack":
        pending = object_of(own_end, "pending_ack")
        if pending is None:
            raise BadRecord("pending_ack is missing")
        return f"late ACK after {needed_number(pending, 'duration_us') / 1000:.1f} ms: {ends}"
    if kind == "hold":
        return f"hold of {needed_number(record, 'duration_us') / 1000:.1f} ms: {ends}"
    reason = f" ({needed_word(record, 'reason')})" if "reason" in record else ""
    return (f"stall of {needed_number(record, 'duration_us') / 1000:.1f} ms "
            f"({needed_word(record, 'cause')}{reason}, {needed_word(record, 'evidence')}): {ends}")
