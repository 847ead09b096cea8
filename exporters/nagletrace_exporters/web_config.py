# SPDX-License-Identifier: GPL-2.0
"""--web.config.file: TLS and basic auth, a strict subset of the exporter toolkit's file.

Read again when it, or a file that it names, has changed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import ssl
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bcrypt
import yaml

TLS_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
TLS_KEYS = ("cert_file", "key_file", "client_ca_file", "client_auth_type", "min_version")
#: A password is asked for in vain and then refused, so that nobody learns by time which users there are.
NOBODY = bcrypt.hashpw(os.urandom(16).hex().encode(), bcrypt.gensalt(10))


class ConfigError(Exception):
    """The file says something that cannot be used; names the file, the key and the remedy on one line."""


@dataclass
class WebConfig:
    """What the file says. Without TLS `context` is None; without users everybody may read."""

    context: ssl.SSLContext | None = None
    users: dict[str, bytes] = field(default_factory=dict)
    #: the files it came from, as they were
    stamps: dict[Path, tuple[int, int] | None] = field(default_factory=dict)
    _known: dict[str, bytes] = field(default_factory=dict)

    def allows(self, authorization: str | None) -> bool:
        """Is this header of basic auth one of the users with their password?"""
        if not self.users:
            return True
        kind, _, rest = (authorization or "").partition(" ")
        if kind.lower() != "basic":
            return False
        try:
            user, colon, password = base64.b64decode(rest, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return False
        return bool(colon) and self._matches(user, password)

    def _matches(self, user: str, password: str) -> bool:
        """bcrypt is slow on purpose: a password that was right is known by a quick hash from then on."""
        quick = hashlib.sha256(password.encode()).digest()
        if user in self._known and hmac.compare_digest(self._known[user], quick):
            return True
        hashed = self.users.get(user, NOBODY)
        try:
            right = bcrypt.checkpw(password.encode()[:72], hashed) and user in self.users
        except ValueError:
            right = False
        if right:
            self._known[user] = quick
        return right


class ConfigFile:
    """The file, read when it is first wanted and whenever it changed. None: there is none."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._config = load(path) if path else WebConfig()

    def current(self) -> WebConfig:
        """Raises ConfigError when the file became unusable: then nobody is let in."""
        if not self.path:
            return self._config
        with self._lock:
            if any(stamp(path) != was for path, was in self._config.stamps.items()):
                self._config = load(self.path)
            return self._config


def stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def load(path: Path) -> WebConfig:
    before = stamp(path)
    try:
        parsed = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    parsed = mapping(path, "", parsed, ("tls_server_config", "basic_auth_users"))
    config = WebConfig(stamps={path: before})
    tls = mapping(path, "tls_server_config", parsed.get("tls_server_config"), TLS_KEYS)
    if tls:
        config.context = tls_context(path, tls, config)
    for user, hashed in mapping(path, "basic_auth_users", parsed.get("basic_auth_users"), None).items():
        if not isinstance(hashed, str) or not hashed.startswith(("$2a$", "$2b$", "$2y$")):
            raise ConfigError(f"{path}: basic_auth_users: {user}: not a bcrypt hash; make one with `htpasswd -nB`")
        config.users[user] = hashed.encode()
    return config


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


def choose(path: Path, tls: dict[str, Any], key: str, default: str, choices: dict[str, Any]) -> Any:
    value = tls.get(key, default)
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(f"{path}: tls_server_config: {key}: {value}: not known; give {', '.join(choices)}")
    return choices[value]


def tls_context(path: Path, tls: dict[str, Any], config: WebConfig) -> ssl.SSLContext:
    files: dict[str, Path] = {}
    for key in ("cert_file", "key_file", "client_ca_file"):
        if key in tls:
            if not isinstance(tls[key], str):
                raise ConfigError(f"{path}: tls_server_config: {key}: not a path")
            files[key] = path.parent / tls[key]  # as the toolkit does: from where the configuration lies
            config.stamps[files[key]] = stamp(files[key])
    for key in ("cert_file", "key_file"):
        if key not in files:
            raise ConfigError(f"{path}: tls_server_config: {key}: missing; TLS needs a certificate and its key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = choose(path, tls, "min_version", "TLS12", TLS_VERSIONS)
    verify = choose(path, tls, "client_auth_type", "NoClientCert", CLIENT_AUTH)
    if verify != ssl.CERT_NONE and "client_ca_file" not in files:
        raise ConfigError(f"{path}: tls_server_config: client_ca_file: missing; client_auth_type needs it")
    try:
        context.load_cert_chain(files["cert_file"], files["key_file"])
        if "client_ca_file" in files:
            context.load_verify_locations(files["client_ca_file"])
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{path}: tls_server_config: {error.strerror or error}: "
                          f"look at {', '.join(map(str, files.values()))}") from error
    context.verify_mode = verify
    return context
