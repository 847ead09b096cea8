# SPDX-License-Identifier: GPL-2.0
"""--otlp.endpoint and --otlp.config.file: the receiver's address, and TLS and credentials for it.

The file's keys are in the manner of Prometheus's http_config. Names of files in it begin at its own directory. The
exporter reads it again when it, or a file that it names, has changed: tokens expire.
"""

from __future__ import annotations

import argparse
import base64
import logging
import re
import ssl
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ...config_file import (
    ConfigError,
    Stamps,
    has_changed,
    load_mapping,
    load_tls,
    mapping,
    may_be_host,
    named_file,
    stamp,
)
from ...records import printable

log = logging.getLogger(__name__)

#: What a URL without a path means.
LOGS_PATH = "/v1/logs"
TLS_KEYS = ("ca_file", "cert_file", "key_file", "server_name", "min_version")
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
HEADER_VALUE = re.compile(r"[\x20-\x7e]{0,8192}")
#: The exporter writes these itself; credentials have keys of their own.
RESERVED = {"authorization", "connection", "content-encoding", "content-length", "content-type", "host",
            "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade", "user-agent"}
#: The variable of the environment that names the host of the records, besides what the daemon says.
RESOURCE = "OTEL_RESOURCE_ATTRIBUTES"
ATTRIBUTE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z/-]{1,255}")
#: The most bytes of a file of credentials.
SECRET_BYTES = 8192


class Endpoint(NamedTuple):
    """The receiver, as --otlp.endpoint names it."""

    tls: bool
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.path}"


def endpoint(text: str) -> Endpoint:
    """Takes http://HOST[:PORT][/PATH] or https://…; the type of --otlp.endpoint."""
    example = "give for example http://127.0.0.1:4318 or https://collector.example/v1/logs"
    if "@" in text or "?" in text or "#" in text:
        # The message leaves the text out: it may have a password.
        raise argparse.ArgumentTypeError("a URL with a user, a query or a fragment; everybody on this host can read "
                                         "the command line: give credentials in --otlp.config.file")
    try:
        url = urllib.parse.urlsplit(text)
        port = url.port
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{printable(text)!r}: not a URL; {example}") from error
    if (url.scheme not in ("http", "https") or not url.hostname or not may_be_host(url.hostname) or port == 0
            or not re.fullmatch(r"[!-~]*", text)):
        raise argparse.ArgumentTypeError(f"{printable(text)!r}: not a URL of http or https; {example}")
    tls = url.scheme == "https"
    return Endpoint(tls, url.hostname, port or (443 if tls else 80),
                    url.path if url.path not in ("", "/") else LOGS_PATH)


def resource_attributes(text: str) -> dict[str, str]:
    """Reads OTEL_RESOURCE_ATTRIBUTES as OpenTelemetry specifies it: KEY=VALUE[,KEY=VALUE], with `%` before the digits
    of other characters. What is wrong is left out, and logged: others set this variable for all programs."""
    found = {}
    for part in filter(None, map(str.strip, text.split(","))):
        key, equals, value = part.partition("=")
        if equals and ATTRIBUTE.fullmatch(key.strip()):
            found[key.strip()] = urllib.parse.unquote(value.strip())
        else:
            log.warning("%s: %r is left out: not a name and a value; give for example k8s.node.name=node-1", RESOURCE,
                        printable(part[:80]))
    return found


@dataclass
class OtlpConfig:
    """The file's settings. Without TLS, `context` is None."""

    context: ssl.SSLContext | None = None
    #: the name that the receiver's certificate must have, if that is not the URL's
    server_name: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    stamps: Stamps = field(default_factory=dict)


class OtlpConfigFile:
    """Reads the file at first, and again whenever it has changed. Without a path there are no settings."""

    def __init__(self, path: Path | None, tls: bool) -> None:
        self.path = path
        self._tls = tls
        self._config = load(path, tls)

    def current(self) -> OtlpConfig:
        """Returns the settings, the same object while no file has changed. Raises ConfigError if they are unusable."""
        if has_changed(self._config.stamps):
            self._config = load(self.path, self._tls)
        return self._config


def load(path: Path | None, tls: bool) -> OtlpConfig:
    config = OtlpConfig()
    given: dict[str, Any] = {}
    if path:
        config.stamps[path] = stamp(path)
        parsed = load_mapping(path, ("tls_config", "authorization", "basic_auth", "http_headers"))
        if "tls_config" in parsed and not tls:
            raise ConfigError(f"{path}: tls_config: --otlp.endpoint is of http; give one of https")
        given = mapping(path, "tls_config", parsed.get("tls_config"), TLS_KEYS)
        add_headers(path, parsed, config)
    if tls:
        config.context = tls_context(path or Path(), given, config)
    elif config.headers:  # any may be a credential, such as `api-key`
        log.warning("--otlp.config.file %s: its headers and credentials go over the network in clear; https would "
                    "encrypt them", path)
    return config


def add_headers(path: Path, parsed: dict[str, Any], config: OtlpConfig) -> None:
    if "authorization" in parsed and "basic_auth" in parsed:
        raise ConfigError(f"{path}: authorization and basic_auth exclude each other; give one of them")
    for name, value in mapping(path, "http_headers", parsed.get("http_headers"), None).items():
        key = f"http_headers: {printable(name)}"
        if not HEADER_NAME.fullmatch(name) or name.lower() in RESERVED:
            raise ConfigError(f"{path}: {key}: not a header that may be set here; give credentials by authorization "
                              "or basic_auth")
        given = mapping(path, key, value, ("value", "file"))
        config.headers[name] = secret(path, key, given, ("value", "file"), config)
    if "authorization" in parsed:
        given = mapping(path, "authorization", parsed["authorization"], ("type", "credentials", "credentials_file"))
        kind = given.get("type", "Bearer")
        if not isinstance(kind, str) or not HEADER_NAME.fullmatch(kind) or kind.lower() == "basic":
            raise ConfigError(f"{path}: authorization: type: not a word such as Bearer; there is basic_auth too")
        text = secret(path, "authorization", given, ("credentials", "credentials_file"), config)
        config.headers["Authorization"] = f"{kind} {text}"
    if "basic_auth" in parsed:
        given = mapping(path, "basic_auth", parsed["basic_auth"], ("username", "password", "password_file"))
        user = given.get("username")
        if not isinstance(user, str) or not user or ":" in user or not HEADER_VALUE.fullmatch(user):
            raise ConfigError(f"{path}: basic_auth: username: missing, or not a name without a colon")
        text = secret(path, "basic_auth", given, ("password", "password_file"), config)
        config.headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{text}".encode()).decode()


def secret(path: Path, where: str, given: dict[str, Any], keys: tuple[str, str], config: OtlpConfig) -> str:
    """Returns a text that stands under the first key, or in the file that the second one names."""
    inline, named = keys
    if (inline in given) == (named in given):
        raise ConfigError(f"{path}: {where}: give either {inline} or {named}")
    text = given.get(inline)
    if named in given:
        file = named_file(path, where, given, named, config.stamps)
        try:
            with file.open("rb") as stream:
                text = stream.read(SECRET_BYTES + 2).decode().rstrip("\r\n")
        except OSError as error:
            raise ConfigError(f"{path}: {where}: {named}: {file}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path}: {where}: {named}: {file}: not a text") from error
    if not isinstance(text, str) or not text or not HEADER_VALUE.fullmatch(text):
        raise ConfigError(f"{path}: {where}: {named if named in given else inline}: not one line of up to "
                          f"{SECRET_BYTES} ASCII characters")
    return text


def tls_context(path: Path, given: dict[str, Any], config: OtlpConfig) -> ssl.SSLContext:
    if ("cert_file" in given) != ("key_file" in given):
        raise ConfigError(f"{path}: tls_config: cert_file and key_file go together; give both or none")
    name = given.get("server_name")
    if name is not None and not (isinstance(name, str) and re.fullmatch(r"[!-~]{1,255}", name) and may_be_host(name)):
        raise ConfigError(f"{path}: tls_config: server_name: not a name of a host")
    config.server_name = name
    # From Python 3.13 on, create_default_context() refuses many a private CA (VERIFY_X509_STRICT).
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if "ca_file" in given else ssl.create_default_context()
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a CA file may have an intermediate one alone
    load_tls(context, path, "tls_config", given, config.stamps)
    return context
