# SPDX-License-Identifier: GPL-2.0
"""Says how the tests try each command of the documents. tests/live/test_docs.py runs this table, and demands that it is
whole.

The key is the command as the document has it, on one line and without its comment. It runs as it stands, with these
replacements: durations are cut short; PID, 4242 and COMM are a program that stalls; PEER is a host with a route of its
own.
"""

from __future__ import annotations

from dataclasses import dataclass

DAEMON = "sudo nagletrace daemon --group adm &"
EXPORTER = "nagletrace-exporter --web.listen-address 127.0.0.1:10040"
TRACE = "sudo nagletrace -P 8000 --timeline --stacks -d 60s -o json >trace.jsonl"
STACKS = "sudo nagletrace -n myapp --stacks -d 60s -o json >trace.jsonl"
RECORDING = "sudo nagletrace -n myapp --stacks -d 60s -o json >recording.jsonl"
KEY = "(umask 077 && openssl rand -hex 16 >fleet.key)"
WEB1 = "sudo nagletrace -o json --late-acks --fleet-key fleet.key -d 60s >web1.jsonl"
LOCAL = "clickhouse local --path store "
JOIN = "nagletrace-join web1.jsonl db1.jsonl"
#: the closing report of a trace that found stalls, and a line for each
REPORT = r"nagletrace: [1-9]\d* stalls? in "
LINE = r"myapp\[\d+\] +send +\d"


@dataclass(frozen=True)
class Run:
    """The test runs the command, which ends with exit code 0."""

    #: the output, or the file that it writes, matches this
    shows: str = ""
    #: how it ends. "itself"; "interrupt": by SIGINT once it shows that; "stays": after all other commands
    ends: str = "itself"
    #: the file that it writes
    writes: str = ""
    #: commands that have to run before it
    needs: tuple[str, ...] = ()
    #: the keys to press in a terminal, each once a text is on the screen
    keys: tuple[tuple[str, str], ...] = ()
    #: PID is this end of the connection
    end: str = "client"
    #: the test skips it where this file is missing: on a kernel without that setting
    where: str = ""
    #: it has a /run of its own, without a daemon
    alone: bool = False


@dataclass(frozen=True)
class Tried:
    """Another test does the same: `file::test`, or a file that has these words."""

    by: str
    words: str = ""


@dataclass(frozen=True)
class Target:
    """A target of make takes too long here. The test checks that make knows it and that the programs that it names
    exist; `why` says what runs it."""

    why: str


@dataclass(frozen=True)
class Packages:
    """The command installs packages, which are among those that the Makefile installs for the tests."""


@dataclass(frozen=True)
class Units:
    """The command talks to systemd, which does not run here, about units that are installed."""


How = Run | Tried | Target | Packages | Units

UNITS_START = Tried("tests/monitoring/test_units.py::test_the_units_trace_with_what_they_are_given")
#: These commands ask, and the test answers. `fix` waits for stalls before it asks.
FIX = Run(r"verdict +\w(.*\n)+ +restored +1 connection as before", keys=(("[y/N]", "y\n"),))

STORED = Tried("tests/clickhouse/test_documents.py::test_the_commands_lead_from_two_recordings_to_the_answers")
CHART = Tried("tests/helm/test_page.py::test_the_commands_install_what_the_page_says")
GADGET = Tried("tests/gadget/test_gadget.py::"
               "test_each_stall_comes_out_with_process_connection_duration_and_reason")
SAVED = Tried("exporters/tests/test_join.py::test_what_is_saved_is_joined_as_the_recordings_are")
JOINED = Tried("tests/live/test_join.py::test_the_joined_stalls_make_a_page")

COMMANDS: dict[str, How] = {
    # ---- from a clone on
    "make": Run("build/nagletrace|up to date"),
    "make help": Run("make demo .*\n(.*\n)*.*make dist "),
    "make demo": Run(r"nagletrace: ready\n(.*\n)*nagletrace: [1-9]\d* stalls in .*\n(.*\n)* +fix +write both parts"),
    "sudo build/nagletrace -p PID": Run(LINE, ends="interrupt"),
    "sudo build/nagletrace fix -p PID --nodelay": FIX,
    "sudo make install": Run(r"install .*/sbin/nagletrace"),
    "make deb && sudo apt install ./build/deb/*.deb": Tried(
        "tests/packages/test_packages.py::test_the_daemon_and_the_exporter_serve_with_what_their_units_give"),
    "make rpm": Target("tests/packages/test_packages.py builds and installs them"),
    "scp build/rpm/nagletrace-[0-9]*.x86_64.rpm HOST: && "
    "ssh -t HOST 'sudo dnf install ./nagletrace-[0-9]*.x86_64.rpm'": Tried(
        "tests/packages/test_packages.py::test_it_names_the_stalls_of_a_program"),
    "make static": Target("tests/live/test_static.py and tests/arm64 run what it builds"),
    "scp build/static/nagletrace-*-aarch64 HOST:nagletrace && ssh -t HOST sudo ./nagletrace": Tried(
        "tests/arm64/test_arm64.py::test_every_stall_is_found_with_its_process_cause_and_duration"),
    "sudo apt-get install curl python3-prometheus-client python3-bcrypt python3-yaml python3-jinja2 "
    "python3-uvicorn": Packages(),
    "sudo systemd-sysusers": Tried("tests/live/test_docs.py::test_systemd_finds_what_is_installed"),
    "sudo systemctl daemon-reload": Units(),
    "sudo systemctl enable --now nagletrace nagletrace-exporter": UNITS_START,
    "sudo nagletrace report": Run(REPORT, needs=(DAEMON,)),
    "curl -s --retry 9 --retry-connrefused http://localhost:10040/metrics | grep nagletrace_up": Run(
        r"^nagletrace_up 1", needs=(EXPORTER,)),
    "sudo install -d -m 2750 -g adm /var/log/nagletrace": Run(),
    "sudo cp dashboards/prometheus/recording.yml dashboards/prometheus/alerts.yml /etc/prometheus/": Run(),
    "promtool check rules /etc/prometheus/recording.yml /etc/prometheus/alerts.yml": Run(
        r"recording.yml\n +SUCCESS(.*\n)*.*alerts.yml\n +SUCCESS",
        needs=("sudo cp dashboards/prometheus/recording.yml dashboards/prometheus/alerts.yml /etc/prometheus/",)),
    "helm install nagletrace packaging/helm/nagletrace --set daemon.image.repository=registry.example/nagletrace "
    "--set exporter.image.repository=registry.example/nagletrace-exporter": CHART,
    "helm upgrade nagletrace packaging/helm/nagletrace --reuse-values --set "
    "podMonitor.enabled=true,podMonitor.labels.release=prometheus --set "
    "prometheusRule.enabled=true,prometheusRule.labels.release=prometheus --set dashboard.enabled=true": CHART,
    "helm upgrade nagletrace packaging/helm/nagletrace --reuse-values --set-file fleetKey.value=fleet.key": CHART,
    "helm upgrade nagletrace packaging/helm/nagletrace --reuse-values --set seLinuxOptions.type=spc_t": CHART,
    "helm upgrade nagletrace packaging/helm/nagletrace --reuse-values --set seLinuxOptions.type=spc_t --set "
    "serviceAccount.create=true,securityContextConstraints.create=true": CHART,
    "make gadget": Target("tests/gadget builds by the same function, tests/gadgets.py, and runs it"),
    **dict.fromkeys(("sudo build/gadget/ig image import build/gadget/nagletrace-0.1.0.tar",
                     "sudo build/gadget/ig run nagletrace:0.1.0 --verify-image=false --host"), GADGET),
    "make demo-monitoring": Tried(
        "tests/monitoring/test_end_to_end.py::test_the_demonstration_starts_the_same_set_and_says_where"),

    # ---- what is pasted with its output is run by tests/pasted.py, which test_docs.py compares with the documents
    "sudo nagletrace -n lab-client --all-holds --wide": Tried("tests/pasted.py", '"-n", "lab-client", "--all-holds"'),
    "sudo nagletrace -p PID --timeline": Tried("tests/pasted.py", '"-p", str(lab.client), "--timeline"'),
    "sudo nagletrace top -n lab-client": Tried("tests/pasted.py", '"top", "-n", "lab-client"'),
    "sudo nagletrace fix -p NUMBER --nodelay": Tried("tests/pasted.py", '"fix", "-p", str(lab.client), "--nodelay"'),

    # ---- the daemon and its readers
    DAEMON: Run(r"nagletrace: ready", ends="stays"),
    EXPORTER: Run(r"listening on", ends="stays", needs=(DAEMON,)),
    "nagletrace report": Run(REPORT, needs=(DAEMON,)),
    "sudo nagletrace top": Run(keys=(("myapp", "q"),), needs=(DAEMON,)),
    "nagletrace top": Run(keys=(("myapp", "q"),), needs=(DAEMON,)),
    "curl -s http://127.0.0.1:10040/metrics | grep nagletrace_stalls": Run(
        r'nagletrace_stalls_total\{.*comm="myapp"', needs=(EXPORTER,)),
    "nagletrace-report --socket /run/nagletrace/nagletrace.sock --duration 30s -o stalls.html": Run(
        "myapp", writes="stalls.html", needs=(DAEMON,)),
    "SOCKET=/run/nagletrace/nagletrace.sock; nagletrace-report --socket $SOCKET -d 30s -o stalls.html": Run(
        "myapp", writes="stalls.html", needs=(DAEMON,)),
    'echo \'{"request":"health"}\' | socat - UNIX-CONNECT:/run/nagletrace/nagletrace.sock': Run(
        r'"type":"health".*"state":"ok"', needs=(DAEMON,)),
    "nagletrace report --health -o json": Run(r'"type":"health".*"state":"ok"', needs=(DAEMON,)),
    "nagletrace daemon --hooks tracepoint": Run(r"nagletrace: ready", ends="interrupt", alone=True),
    "systemctl status nagletrace nagletrace-exporter": Units(),
    "systemctl restart nagletrace": Units(),
    "journalctl -u nagletrace -n 20": Units(),
    "sudo nagletrace check": Run(r"tracepoint +(yes|no)"),

    # ---- recordings
    TRACE: Run(r'"type":"event"(.*\n)*.*"closing":true', writes="trace.jsonl"),
    STACKS: Run(r'"type":"stall".*"stack"', writes="trace.jsonl"),
    RECORDING: Run(r'"type":"stall".*"stack"', writes="recording.jsonl"),
    "nagletrace-report -i trace.jsonl -o report.html": Run(r"myapp\[?", writes="report.html", needs=(TRACE,)),
    "nagletrace-flame -i trace.jsonl --output svg -o flame.svg": Run(r"<svg", writes="flame.svg", needs=(STACKS,)),
    "nagletrace-flame -i recording.jsonl --output svg -o stalls.svg": Run(r"<svg", writes="stalls.svg",
                                                                        needs=(RECORDING,)),

    # ---- two hosts
    KEY: Run(writes="fleet.key"),
    "nagletrace-exporter --otlp.endpoint http://127.0.0.1:4318": Tried(
        "exporters/tests/test_otlp.py::test_what_the_daemon_streams_arrives"),
    "journalctl --directory /var/log/journal/remote --identifier nagletrace --output cat >fleet.jsonl": Tried(
        "tests/carriers/test_journald.py::test_what_the_journal_holds_arrives_when_the_collector_comes_back"),
    JOIN: JOINED,
    "nagletrace-join --save web1.parquet web1.jsonl": SAVED,
    "nagletrace-join web1.parquet db1.jsonl": SAVED,
    JOIN + " --output json -o both.jsonl": JOINED,
    "nagletrace-report -i both.jsonl -o both.html": JOINED,
    **dict.fromkeys((LOCAL + rest for rest in (
        "--queries-file dashboards/clickhouse/schema.sql",
        "--query \"INSERT INTO nagletrace.incoming FROM INFILE 'web1.jsonl' FORMAT LineAsString\"",
        "--query \"INSERT INTO nagletrace.incoming FROM INFILE 'db1.jsonl' FORMAT LineAsString\"",
        "--queries-file dashboards/clickhouse/queries/hosts.sql",
        "--queries-file dashboards/clickhouse/queries/join.sql",
        "--queries-file dashboards/clickhouse/queries/lost-time.sql",
        "--queries-file dashboards/clickhouse/queries/last-hour.sql",
        "--queries-file dashboards/clickhouse/queries/contradicted.sql",
        "--param_address 10.0.0.1:51234 --queries-file dashboards/clickhouse/queries/connection.sql",
        "--query \"SELECT host, ack_key, min(time) FROM nagletrace.runs WHERE kind = 'start' GROUP BY ALL\"")), STORED),
    WEB1: Run(r'"late_acks":"all"(.*\n)*.*"ack_id":"[0-9a-f]{16}"', writes="web1.jsonl", needs=(KEY,)),

    # ---- remedies that are kept
    **dict.fromkeys(("sudo nagletrace fix --unit legacy.service --nodelay --keep",
                     "sudo nagletrace fix --unit legacy.service"),
                    Tried("tests/live/test_keep.py::test_no_connection_of_the_cgroup_stalls_while_the_command_runs")),
    "nagletrace check": Tried("tests/live/test_keep.py::"
                              "test_no_connection_of_the_cgroup_stalls_while_the_command_runs"),
    **dict.fromkeys(("sudo nagletrace fix --unit legacy.service --nodelay --pin",
                     "nagletrace fix --pod UID --nodelay --pin",
                     "sudo nagletrace fix --container web-1 --quickack-limit 8ms --pin",
                     "sudo nagletrace fix --unit legacy.service --undo"),
                    Tried("tests/live/test_keep.py::test_a_pinned_remedy_stays_until_it_is_undone")),

    # ---- traces
    "sudo nagletrace -- curl http://127.0.0.1:8000/": Tried(
        "tests/live/test_workload.py::test_the_command_has_our_streams_and_reports_go_to_stderr"),
    "sudo nagletrace --fail-on-stall --output-file stalls.txt -- make check": Tried(
        "tests/live/test_workload.py::test_stalls_fail_the_command_that_asks_for_it"),
    "docker run --rm --pid=host --cap-add BPF --cap-add PERFMON IMAGE nagletrace --fail-on-stall -- make "
    "integration-test": Tried(
        "tests/live/test_workload.py::test_a_container_needs_two_capabilities_and_the_hosts_process_ids"),
    "sudo nagletrace -p 4242 -i 5s": Run(REPORT, ends="interrupt"),
    "sudo nagletrace -P 6379 -d 30s -o json | tail -n 1 | jq .totals": Run(r'"writes": [1-9]'),
    "sudo nagletrace -n nginx --stacks": Run(r"nginx\[\d+\] +send +\d", ends="interrupt"),
    "sudo nagletrace -P 8000 -d 2s --timeline": Run(r"write 6 B"),
    "sudo nagletrace --netns 4242 -d 30s": Run(REPORT),
    "sudo nagletrace -n myapp -d 60s > before.txt": Run(REPORT, writes="before.txt"),
    "sudo nagletrace -n myapp -d 60s > after.txt": Run(REPORT, writes="after.txt"),
    "sudo nagletrace -n myapp -d 60s -o json | tail -n 1 | jq '{stalls, excess_us, writes: .totals.writes, "
    "holds: .totals.holds, releases: .totals.releases, acks: .totals.delayed_acks}'": Run(
        r'"stalls": [1-9](.*\n)*.*"writes": [1-9](.*\n)*.*"nagle": [1-9](.*\n)*.*"acks": '),
    "sudo nagletrace -n COMM --stacks -d 30s": Run(REPORT),
    "sudo nagletrace -n COMM -a -o json -d 30s": Run(r'"type":"stall"(.*\n)*.*"closing":true'),

    "sudo nagletrace sample 5 1": Run(r"stalls cost .* a second, ±(.*\n)+myapp\[\d+\] +nagle "),

    # ---- the experiment
    "sudo nagletrace fix -p PID --nodelay": FIX,
    "sudo nagletrace fix -p PID --quickack --for 30s": Run(r"verdict +TCP_QUICKACK", keys=(("[y/N]", "y\n"),),
                                                           end="server"),
    "sudo nagletrace fix -p 4242 --nodelay --for 30s": FIX,
    "sudo nagletrace fix -n myapp -P 8000 --nodelay --yes -o json | tail -n 1 | jq '{verdict, verdict_text}'": Run(
        r'"verdict": "(cured|helped|unclear)",\n +"verdict_text": "'),

    # ---- the system's own remedies, in the order in which they are tried
    "nstat -n; sleep 10; nstat TcpOutSegs TcpExtDelayedACKs": Run(r"TcpOutSegs +\d+(.*\n)*TcpExtDelayedACKs +[1-9]"),
    "ip route get 198.51.100.7": Run(r"via 192.0.2.1 dev eth0"),
    "sudo ip route add 198.51.100.7/32 via 192.0.2.1 dev eth0 quickack 1": Run(),
    "ip route get PEER": Run(r"198.51.100.7 via 192.0.2.1 .*\n.*quickack 1",
                             needs=("sudo ip route add 198.51.100.7/32 via 192.0.2.1 dev eth0 quickack 1",)),
    "sudo ip route del 198.51.100.7/32": Run(
        needs=("sudo ip route add 198.51.100.7/32 via 192.0.2.1 dev eth0 quickack 1",)),
    "sudo ip route change $(ip route show exact 192.0.2.0/24) quickack 1": Run(),
    "sudo ip route change $(ip route show exact 192.0.2.0/24) quickack 0": Run(
        needs=("sudo ip route change $(ip route show exact 192.0.2.0/24) quickack 1",)),
    "sudo sysctl net.ipv4.tcp_pingpong_thresh=255": Run("= 255", where="/proc/sys/net/ipv4/tcp_pingpong_thresh"),
    "sudo sysctl net.ipv4.tcp_pingpong_thresh=1": Run("= 1", where="/proc/sys/net/ipv4/tcp_pingpong_thresh"),
    "sudo sysctl net.ipv4.tcp_rto_min_us=10000": Run("= 10000", where="/proc/sys/net/ipv4/tcp_rto_min_us"),
    "sudo sysctl net.ipv4.tcp_rto_min_us=200000": Run("= 200000", where="/proc/sys/net/ipv4/tcp_rto_min_us"),
    "ss -ti": Run(r"rto:\d+.* ato:\d+"),
    "nstat TcpRetransSegs TcpExtTCPSpuriousRTOs": Run(r"kernel"),
    "sudo sysctl net.ipv4.tcp_autocorking=0": Run("= 0"),
    "sudo sysctl net.ipv4.tcp_autocorking=1": Run("= 1"),

    # ---- who changes it
    "make check": Target("a part of make test, which runs this test"),
    "make test": Tried(".ci/run", "make deps build test"),
    "make test-all": Target("make test runs this test, and before a release somebody the rest"),
    "make test-live T=verdict": Target("a part of make test, which runs this test"),
}
