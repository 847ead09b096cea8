# SPDX-License-Identifier: GPL-2.0
"""Daemon, exporter, Prometheus and Alertmanager with a webhook, on loopback, for the tests and `make demo-monitoring`.

Configuration and rules are the ones of dashboards/prometheus/. Time is compressed: what they look at over minutes is
looked at over seconds, else an alert would take ten minutes to fire and as long to resolve.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from processes import end, free_port, wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
NAGLETRACE = ROOT / "build" / "nagletrace"
RULES = ROOT / "dashboards" / "prometheus"
PATIENCE = 30.0
#: What the rules look back over, and what stays of each `for`.
LOOK_BACK, HOLD = "10s", "3s"
INTERVAL = "1s"

#: What is to be done with each alert that reaches the webhook.
Tell = Callable[[dict[str, Any]], None]


def get(url: str, timeout: float = PATIENCE) -> str:
    with urllib.request.urlopen(url, timeout=timeout) as answer:  # noqa: S310
        text: str = answer.read().decode()
        return text


class Program:
    """A process of ours whose output goes to a file; ended by SIGTERM."""

    def __init__(self, name: str, log: Path, command: list[str | Path], env: dict[str, str] | None = None) -> None:
        self.name, self.log = name, log
        with log.open("w") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output,
                                            stderr=subprocess.STDOUT, env={**os.environ, **(env or {})})

    def wait_for(self, ready: Callable[[], bool]) -> None:
        def is_ready() -> bool:
            assert self.process.poll() is None, f"{self.name} has ended: {self.log.read_text()[-2000:]}"
            return ready()

        wait_until(f"{self.name} is ready", is_ready)

    def stop(self) -> None:
        end(self.process, PATIENCE)


class Answers:
    """What `answer` makes of the body of each request, on loopback; ended by stop()."""

    def __init__(self, answer: Callable[[bytes], str]) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(text.encode())

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Webhook(Answers):
    """What Alertmanager posts."""

    def __init__(self, tell: Tell | None = None) -> None:
        self.alerts: list[dict[str, Any]] = []
        self.tell = tell
        super().__init__(self.take)

    def take(self, body: bytes) -> str:
        for alert in json.loads(body)["alerts"]:
            self.alerts.append(alert)
            if self.tell:
                self.tell(alert)
        return ""

    def has(self, status: str, **labels: str) -> bool:
        return any(a["status"] == status and labels.items() <= a["labels"].items() for a in list(self.alerts))


def compressed(rules: str) -> str:
    """The same rules over seconds; names of recorded series stay."""
    return re.sub(r"\bfor: \d+m\b", f"for: {HOLD}", re.sub(r"\[\d+m\]", f"[{LOOK_BACK}]", rules))


class Stack:
    """Runs from the constructor's end on. addresses: what a person may look at, by name.

    daemon_arguments: of the daemon of this host; None: there is none, and add_host() brings those that there are.
    kube_state: what kube-state-metrics tells, of a cluster that does not change.
    """

    def __init__(self, directory: Path, daemon_arguments: tuple[str, ...] | None = (),
                 tell: Tell | None = None, kube_state: str | None = None) -> None:
        self.directory = directory
        self.hosts: list[dict[str, Any]] = []
        self.kube_state = Answers(lambda _: kube_state) if kube_state is not None else None
        self.space: Any = None  # the namespace that the daemon watches, where a test made one
        self.pod: Any = None  # in which its programs stall, likewise
        self.programs: list[Program] = []
        self.socket = directory / "nagletrace.sock"
        self.daemon_arguments = daemon_arguments
        self.webhook = Webhook(tell)
        ports = {name: free_port() for name in ("exporter", "prometheus", "alertmanager")}
        self.addresses = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        self.instance = f"127.0.0.1:{ports['exporter']}"
        try:
            if daemon_arguments is not None:
                self.daemon = self.start_daemon()
                self._start_exporter("exporter", ports["exporter"], self.socket)
            self._start_alertmanager(ports["alertmanager"])
            self._start_prometheus(ports["prometheus"])
        except BaseException:
            self.stop()
            raise

    def _start(self, name: str, command: list[str | Path], ready: Callable[[], bool],
               env: dict[str, str] | None = None) -> Program:
        program = Program(name, self.directory / f"{name}.log", command, env)
        self.programs.append(program)
        program.wait_for(ready)
        return program

    @staticmethod
    def _answers(address: str, path: str) -> Callable[[], bool]:
        def answers() -> bool:
            with contextlib.suppress(OSError):
                return bool(get(address + path, 5))
            return False

        return answers

    def start_daemon(self) -> Program:
        return self._start_daemon("daemon", self.socket, self.daemon_arguments or ())

    def _start_daemon(self, name: str, socket: Path, arguments: tuple[str, ...]) -> Program:
        log = self.directory / f"{name}.log"
        return self._start(name, [NAGLETRACE, "daemon", "--socket", socket, *arguments],
                           lambda: "nagletrace: ready" in log.read_text())

    def _start_exporter(self, name: str, port: int, socket: Path) -> None:
        self._start(name, ["/usr/bin/python3", "-m", "nagletrace_exporters.exporter.main", "--daemon.socket", socket,
                           "--metrics.exemplars", "--web.listen-address", f"127.0.0.1:{port}"],
                    self._answers(f"http://127.0.0.1:{port}", "/-/healthy"), {"PYTHONPATH": str(ROOT / "exporters")})

    def add_host(self, name: str, cluster: str, *daemon_arguments: str) -> Program:
        """A daemon and its exporter, which Prometheus scrapes as that instance from now on; the daemon."""
        port, socket = free_port(), self.directory / f"{name}.sock"
        daemon = self._start_daemon(f"daemon-{name}", socket, daemon_arguments)
        self._start_exporter(f"exporter-{name}", port, socket)
        self.hosts.append({"targets": [f"127.0.0.1:{port}"], "labels": {"instance": name, "cluster": cluster}})
        new = self.directory / "hosts.new"
        new.write_text(json.dumps(self.hosts))
        new.rename(self.directory / "hosts.json")
        return daemon

    def _start_alertmanager(self, port: int) -> None:
        config = self.directory / "alertmanager.yml"
        config.write_text(yaml.safe_dump({
            "route": {"receiver": "webhook", "group_by": ["..."], "group_wait": "1s", "group_interval": "1s"},
            "receivers": [{"name": "webhook",
                           "webhook_configs": [{"url": f"http://{self.webhook.address}/", "send_resolved": True}]}]}))
        self._start("alertmanager", ["prometheus-alertmanager", f"--config.file={config}",
                                     f"--storage.path={self.directory / 'alertmanager'}",
                                     f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="],
                    self._answers(self.addresses["alertmanager"], "/-/ready"))

    def _start_prometheus(self, port: int) -> None:
        """With the example's configuration, other addresses and intervals put in."""
        config = yaml.safe_load((RULES / "prometheus.example.yml").read_text())
        config["global"] = {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL, "scrape_timeout": INTERVAL}
        [job] = config["scrape_configs"]
        job["static_configs"] = [{"targets": [self.instance]}] if self.daemon_arguments is not None else []
        job["file_sd_configs"] = [{"files": [str(self.directory / "hosts.json")], "refresh_interval": INTERVAL}]
        config["alerting"]["alertmanagers"][0]["static_configs"] = [
            {"targets": [self.addresses["alertmanager"].removeprefix("http://")]}]
        if self.kube_state:
            config["scrape_configs"].append({"job_name": "kube-state-metrics", "honor_labels": True,
                                             "static_configs": [{"targets": [self.kube_state.address]}]})
        for name in config["rule_files"]:
            (self.directory / name).write_text(compressed((RULES / name).read_text()))
        path = self.directory / "prometheus.yml"
        path.write_text(yaml.safe_dump(config))
        self._start("prometheus", ["prometheus", "--enable-feature=exemplar-storage", f"--config.file={path}",
                                   f"--storage.tsdb.path={self.directory / 'prometheus'}",
                                   f"--web.listen-address=127.0.0.1:{port}"],
                    self._answers(self.addresses["prometheus"], "/-/ready"))

    def check_metrics(self) -> None:
        """Promtool has nothing to say of what the exporter answers."""
        done = subprocess.run(["promtool", "check", "metrics"], input=get(self.addresses["exporter"] + "/metrics"),
                              capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout + done.stderr == "", done.stdout + done.stderr

    def query(self, expr: str) -> list[dict[str, Any]]:
        """What Prometheus answers now; fails with its words when it refuses the expression."""
        url = f"{self.addresses['prometheus']}/api/v1/query?" + urllib.parse.urlencode({"query": expr})
        try:
            answer = json.loads(get(url))
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expr}: {error.read().decode()}") from None
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def exemplars(self, expr: str) -> list[dict[str, Any]]:
        """Those of the series that the expression names, of the last minute."""
        now = time.time()
        values = urllib.parse.urlencode({"query": expr, "start": now - 60, "end": now + 60})
        answer = json.loads(get(f"{self.addresses['prometheus']}/api/v1/query_exemplars?{values}"))
        return [exemplar for series in answer["data"] for exemplar in series["exemplars"]]

    def label_values(self, label: str, match: str) -> list[str]:
        values = urllib.parse.urlencode({"match[]": match})
        answer = json.loads(get(f"{self.addresses['prometheus']}/api/v1/label/{label}/values?{values}"))
        found: list[str] = answer["data"]
        return found

    def stop(self) -> None:
        for program in reversed(self.programs):
            program.stop()
        self.webhook.stop()
        if self.kube_state:
            self.kube_state.stop()


@contextlib.contextmanager
def running(directory: Path, *daemon_arguments: str, tell: Tell | None = None, kube_state: str | None = None
            ) -> Iterator[Stack]:
    stack = Stack(directory, daemon_arguments, tell, kube_state)
    try:
        yield stack
    finally:
        stack.stop()
