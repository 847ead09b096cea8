# SPDX-License-Identifier: GPL-2.0
"""--web.config.file: TLS and basic auth, a strict subset of the exporter toolkit's file.

The exporter reads it again when the file itself, or a file that it names, has changed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import ssl
import threading
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import bcrypt

from ...config_file import ConfigError, Stamps, choose, has_changed, load_mapping, load_tls, mapping, stamp
from ...records import printable

CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
TLS_KEYS = ("cert_file", "key_file", "client_ca_file", "client_auth_type", "min_version")
BCRYPT = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
#: Bounds of bcrypt's cost: a check takes 2^cost rounds. bcrypt allows no less than 4. At 14 a check takes a second, and
#: only one runs at a time: beyond that, strangers could keep scrapers waiting.
LEAST_COST, MOST_COST = 4, 14
#: bcrypt ignores the rest of a longer password.
PASSWORD_BYTES = 72


@dataclass
class WebConfig:
    """Holds the file's settings. Without TLS, `context` is None; without users, everybody may read."""

    context: ssl.SSLContext | None = None
    users: dict[str, bytes] = field(default_factory=dict)
    stamps: Stamps = field(default_factory=dict)
    #: when it was read, in seconds since the epoch
    loaded_s: float = field(default_factory=time.time)
    #: a quick hash of the password that was right last, by user
    _known: dict[str, bytes] = field(default_factory=dict)

    def knows(self, user: str, password: str) -> bool:
        """Returns whether this password was right before. bcrypt is slow on purpose; this is fast."""
        return hmac.compare_digest(self._known.get(user, b""), hashlib.sha256(password.encode()).digest())

    def check(self, user: str, password: str) -> bool:
        """Returns whether this is the user's password. It takes equally long for each user and for unknown ones.

        Otherwise the time would reveal users. One step of cost doubles the time. So after a check of cost c we make
        useless ones of cost c, c + 1, … up to the highest but one: together they take as long as one of the highest.
        """
        highest = max(map(cost_of, self.users.values()))
        hashed = self.users.get(user, in_vain(highest))
        # bcrypt refuses a NUL at once, and the time would show it.
        secret = password.encode()[:PASSWORD_BYTES].replace(b"\0", b"")
        right = bcrypt.checkpw(secret, hashed)
        for cost in range(cost_of(hashed), highest):
            bcrypt.checkpw(secret, in_vain(cost))
        right = right and user in self.users and "\0" not in password
        if right:
            self._known[user] = hashlib.sha256(password.encode()).digest()
        return right

    def learn(self, other: WebConfig) -> None:
        """Takes over known passwords from the previous configuration, for users that are the same in both."""
        self._known = {user: quick for user, quick in other._known.items()
                       if self.users.get(user) == other.users.get(user)}


@cache
def in_vain(cost: int) -> bytes:
    """Returns a hash of this cost that no password has."""
    return bcrypt.hashpw(os.urandom(16).hex().encode(), bcrypt.gensalt(LEAST_COST)).replace(
        b"$%02d$" % LEAST_COST, b"$%02d$" % cost, 1)


def cost_of(hashed: bytes) -> int:
    return int(hashed[4:6])


def credentials(authorization: str | None) -> tuple[str, str] | None:
    """Returns user and password from a header of basic auth; None: it is no such header."""
    kind, _, rest = (authorization or "").partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(rest, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return (user, password) if colon else None


class ConfigFile:
    """Reads the file at first, and again whenever it has changed. Without a path there are no settings."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._config = load(path) if path else WebConfig()

    def current(self) -> WebConfig:
        """Returns the settings. Raises ConfigError if the file has become unusable: then nobody may read."""
        if not self.path:
            return self._config
        with self._lock:
            if has_changed(self._config.stamps):
                config = load(self.path)
                if (config.context is None) != (self._config.context is None):
                    raise ConfigError(f"{self.path}: tls_server_config: added or removed; restart nagletrace-exporter")
                config.learn(self._config)
                self._config = config
            return self._config


def load(path: Path) -> WebConfig:
    before = stamp(path)
    parsed = load_mapping(path, ("tls_server_config", "basic_auth_users"))
    config = WebConfig(stamps={path: before})
    tls = mapping(path, "tls_server_config", parsed.get("tls_server_config"), TLS_KEYS)
    if tls:
        config.context = tls_context(path, tls, config)
    for user, hashed in mapping(path, "basic_auth_users", parsed.get("basic_auth_users"), None).items():
        parts = BCRYPT.fullmatch(hashed) if isinstance(hashed, str) else None
        if not parts:
            raise ConfigError(f"{path}: basic_auth_users: {printable(user)}: not a bcrypt hash; make one with "
                              "`htpasswd -nBC 10`")
        if not LEAST_COST <= int(parts[1]) <= MOST_COST:
            raise ConfigError(f"{path}: basic_auth_users: {printable(user)}: a cost of {parts[1]}; give one from "
                              f"{LEAST_COST} to {MOST_COST}, as `htpasswd -nBC 10` does")
        config.users[user] = hashed.encode()
    return config


def tls_context(path: Path, tls: dict[str, Any], config: WebConfig) -> ssl.SSLContext:
    for key in ("cert_file", "key_file"):
        if key not in tls:
            raise ConfigError(f"{path}: tls_server_config: {key}: missing; TLS needs a certificate and its key")
    verify = choose(path, "tls_server_config", tls, "client_auth_type", "NoClientCert", CLIENT_AUTH)
    if verify != ssl.CERT_NONE and "client_ca_file" not in tls:
        raise ConfigError(f"{path}: tls_server_config: client_ca_file: missing; client_auth_type needs it")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_tls(context, path, "tls_server_config", tls, config.stamps)
    context.verify_mode = verify
    return context
