# SPDX-License-Identifier: GPL-2.0
"""What the exporter's configuration, for its clients and for its receiver, has in common."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Optional

import yaml

TLS_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
#: The files that a configuration was read from, with their times and inodes then.
Stamps = dict[Path, Optional[tuple[int, int]]]


class ConfigError(Exception):
    """The file cannot be used; the message names the file, the key and the remedy on one line."""


def stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def has_changed(stamps: Stamps) -> bool:
    return any(stamp(path) != was for path, was in stamps.items())


def may_be_host(name: str) -> bool:
    """Returns whether socket and ssl take the name: they encode it so, and do not say what is wrong with it."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return True


def load_mapping(path: Path, allowed: tuple[str, ...]) -> dict[str, Any]:
    """Returns what the file has. An error names the line alone: its text may be a password."""
    try:
        parsed = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except Exception as error:  # PyYAML lets ValueError, RecursionError and others of its constructors through
        mark = getattr(error, "problem_mark", None)
        raise ConfigError(f"{path}: not YAML{f', line {mark.line + 1}' if mark else ''}") from error
    return mapping(path, "", parsed, allowed)


def mapping(path: Path, key: str, value: Any, allowed: tuple[str, ...] | None) -> dict[str, Any]:
    where = f"{path}: {key}: " if key else f"{path}: "
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"{where}not a mapping of names to values")
    for name in value:
        if allowed is not None and name not in allowed:
            raise ConfigError(f"{where}{name}: not known; there are {', '.join(allowed)}")
    return value


def choose(path: Path, where: str, given: dict[str, Any], key: str, default: str, choices: dict[str, Any]) -> Any:
    value = given.get(key, default)
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(f"{path}: {where}: {key}: {value}: not known; give {', '.join(choices)}")
    return choices[value]


def named_file(path: Path, where: str, given: dict[str, Any], key: str, stamps: Stamps) -> Path:
    """Returns the file that a key names, from the configuration's directory on, and adds its stamp."""
    if not isinstance(given[key], str):
        raise ConfigError(f"{path}: {where}: {key}: not a path")
    file: Path = path.parent / given[key]
    stamps[file] = stamp(file)
    return file


def load_tls(context: ssl.SSLContext, path: Path, where: str, given: dict[str, Any], stamps: Stamps) -> None:
    """Loads the certificate, the CAs and the least version that the keys name, and adds the stamps of their files."""
    files = {key: named_file(path, where, given, key, stamps) for key in given if key.endswith("_file")}
    context.minimum_version = choose(path, where, given, "min_version", "TLS12", TLS_VERSIONS)
    try:
        if "cert_file" in files:
            # OpenSSL would ask the terminal for a key's passphrase.
            context.load_cert_chain(files["cert_file"], files["key_file"], password=lambda: b"")
        for key in files.keys() & {"ca_file", "client_ca_file"}:
            context.load_verify_locations(files[key])
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{path}: {where}: {error.strerror or error}: "
                          f"look at {', '.join(map(str, files.values()))}") from error
