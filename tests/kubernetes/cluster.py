# SPDX-License-Identifier: GPL-2.0
"""A Kubernetes of one node, for as long as it is wanted: etcd, containerd and runc as Debian ships them, and the
programs of Kubernetes, built from their Go module.

All of it lives in a network namespace and a mount namespace of its own: pods reach nobody but each other and the node,
and nothing stays mounted. Its cgroups lie below one of its own. Its processes are the children of one of them, which
ends them all when its stdin closes, also when the tests are killed.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import go_modules
import processes
import yaml
from debian import Unavailable
from spaces import inside_network

VERSION = "1.34.4"
#: Its own parts that are modules too.
STAGED = f"v0.{VERSION.partition('.')[2]}"
STRINGS = {f"k8s.io/component-base/version.{name}": text for name, text in {
    "gitMajor": VERSION.split(".")[0], "gitMinor": VERSION.split(".")[1], "gitVersion": f"v{VERSION}",
    "gitTreeState": "archive"}.items()}
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")

NODE = "node-1"
API, ETCD, ETCD_PEERS = 6443, 2379, 2380
SERVICES, PODS, ADDRESS = "10.96.0.0/24", "10.244.0.0/24", "10.244.0.1"
#: Who may what: name, groups.
USERS = {
    "admin": "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
    f"system:node:{NODE}": "system:nodes",
}
#: In s. The machine may be busy with other tests.
PATIENCE = 180.0

#: What kubelet would set for the whole machine: in its mount namespace these seem to be set.
SYSCTLS = {"vm/overcommit_memory": 1, "vm/panic_on_oom": 0, "kernel/panic": 10, "kernel/panic_on_oops": 1,
           "kernel/keys/root_maxkeys": 1000000, "kernel/keys/root_maxbytes": 25000000}

#: $1 is the directory of it all. What these programs leave in /run, /var/lib and /var/log is there.
ENTER = """\
cd "$1"
mkdir run lib log
mount --bind run /run
mount --bind lib /var/lib
mount --bind log /var/log
for file in sysctl/*/* sysctl/*/*/*; do
	[ ! -f "$file" ] || [ ! -e "/proc/sys/${file#sysctl/}" ] || mount --bind "$file" "/proc/sys/${file#sysctl/}"
done
ip link set lo up
# the node's address, where its pods find it too
ip link add pods0 type bridge
ip address add "$4" dev pods0
ip link set pods0 up
exec "$2" "$3"
"""

Object = dict[str, Any]


def program(name: str) -> Path:
    """Raises Unavailable."""
    return go_modules.program("k8s.io/kubernetes", f"v{VERSION}", f"cmd/{name}", staged=STAGED, **STRINGS)


def programs() -> dict[str, Path]:
    return {name: program(name) for name in PROGRAMS}


def debian(name: str, package: str) -> Path:
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if not found:
        raise Unavailable(f"{name} cannot be had: Debian's {package} is not installed")
    return Path(found)


wait_until = functools.partial(processes.wait_until, patience=PATIENCE)


class Cgroups:
    """A cgroup of its own in each hierarchy: kubelet wants to find it, with CPUs where there is a cpuset."""

    def __init__(self) -> None:
        self.name = f"nagletrace-{secrets.token_hex(4)}"
        root = Path("/sys/fs/cgroup")
        controllers = root / "cgroup.controllers"
        hierarchies = [root] if controllers.exists() else [path for path in root.iterdir()
                                                           if (path / "cgroup.procs").exists()]
        self.directories = [path / self.name for path in hierarchies]
        self.children = root / "cgroup.subtree_control"
        #: what no cgroup below the root had before, and has not afterwards
        self.added = sorted(set(controllers.read_text().split()) - set(self.children.read_text().split())
                            ) if controllers.exists() else []

    def _control(self, sign: str) -> None:
        if self.added:
            self.children.write_text(" ".join(sign + name for name in self.added))

    def __enter__(self) -> Cgroups:
        self._control("+")
        for directory in self.directories:
            directory.mkdir()
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (directory / name).exists() and (directory.parent / name).exists():
                    (directory / name).write_text((directory.parent / name).read_text())
        return self

    def __exit__(self, *_: object) -> None:
        def gone() -> bool:
            for directory in self.directories:
                for below, _, _ in os.walk(directory, topdown=False):
                    with contextlib.suppress(OSError):
                        os.rmdir(below)
            return not any(directory.exists() for directory in self.directories)

        wait_until(f"the cgroups {self.name} are gone", gone, patience=30)
        self._control("-")


class Cluster:
    """Runs from the constructor's end on, until stop(). kubectl() acts as its administrator."""

    def __init__(self, directory: Path, cgroups: Cgroups) -> None:
        self.directory, self.cgroups = directory, cgroups
        self.programs = programs()
        self.containerd, self.ctr = debian("containerd", "containerd"), debian("ctr", "containerd")
        self.etcd = debian("etcd", "etcd-server")
        debian("runc", "runc")
        self.tokens = {user: secrets.token_hex(16) for user in USERS}
        self._write_configuration()
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "--net", "--propagation", "private", "sh", "-euc", ENTER, "sh",
             str(directory), sys.executable, str(Path(__file__).with_name("node.py")), f"{ADDRESS}/24"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    # ---- what it is made of ----

    def _write_configuration(self) -> None:
        self.settings = {name: Path("/proc/sys", name).read_text() for name in SYSCTLS
                         if Path("/proc/sys", name).exists()}
        for name, value in SYSCTLS.items():
            file = self.directory / "sysctl" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{value}\n")
        lines = [f'{token},{user},{user},"{USERS[user]}"\n' for user, token in self.tokens.items()]
        (self.directory / "tokens.csv").write_text("".join(lines))
        (self.directory / "tokens.csv").chmod(0o600)
        for user in USERS:
            self.kubeconfig(user).write_text(yaml.safe_dump({
                "apiVersion": "v1", "kind": "Config", "current-context": "it",
                # its certificate is of its own making
                "clusters": [{"name": "it", "cluster": {"server": f"https://127.0.0.1:{API}",
                                                        "insecure-skip-tls-verify": True}}],
                "users": [{"name": user, "user": {"token": self.tokens[user]}}],
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": user}}],
            }))
        subprocess.run(["openssl", "genrsa", "-out", self.directory / "accounts.key", "2048"], check=True,
                       capture_output=True)
        (self.directory / "containerd.toml").write_text(CONTAINERD.format(
            run=self.directory / "run" / "containerd", lib=self.directory / "lib" / "containerd",
            networks=self.directory / "networks"))
        networks = self.directory / "networks"
        networks.mkdir()
        (networks / "10-pods.conflist").write_text(json.dumps({
            "cniVersion": "0.4.0", "name": "pods", "plugins": [
                {"type": "bridge", "bridge": "pods0", "isGateway": True,
                 "ipam": {"type": "host-local", "ranges": [[{"subnet": PODS}]]}},
            ]}))
        (self.directory / "kubelet.yaml").write_text(yaml.safe_dump({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{self.cgroups.name}", "failCgroupV1": False,
            "failSwapOn": False, "enforceNodeAllocatable": ["pods"],
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100, "makeIPTablesUtilChains": False, "resolvConf": "",
            "address": "127.0.0.1", "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
            "authorization": {"mode": "Webhook"}, "readOnlyPort": 0, "registerNode": True,
            "syncFrequency": "1s", "nodeStatusUpdateFrequency": "2s", "shutdownGracePeriod": "0s",
        }))

    def kubeconfig(self, user: str) -> Path:
        return self.directory / f"{user.replace(':', '-')}.kubeconfig"

    def run_in_background(self, name: str, *command: object) -> None:
        """The program's output is NAME.log. It ends with the cluster."""
        assert self.holder.stdin
        line = json.dumps({"log": str(self.directory / f"{name}.log"), "command": list(map(str, command))})
        self.holder.stdin.write(f"{line}\n")
        self.holder.stdin.flush()

    def _start(self) -> None:
        assert self.holder.stdout
        assert self.holder.stdout.readline() == "ready\n", "the namespaces could not be made"
        self.run_in_background(
            "etcd", self.etcd, "--data-dir", self.directory / "etcd", "--unsafe-no-fsync",
            "--listen-client-urls", f"http://127.0.0.1:{ETCD}", "--advertise-client-urls", f"http://127.0.0.1:{ETCD}",
            "--listen-peer-urls", f"http://127.0.0.1:{ETCD_PEERS}",
            "--initial-advertise-peer-urls", f"http://127.0.0.1:{ETCD_PEERS}",
            "--initial-cluster", f"default=http://127.0.0.1:{ETCD_PEERS}")
        self.run_in_background("containerd", self.containerd, "--config", self.directory / "containerd.toml")
        key = self.directory / "accounts.key"
        self.run_in_background(
            "kube-apiserver", self.programs["kube-apiserver"], "--etcd-servers", f"http://127.0.0.1:{ETCD}",
            "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", API,
            "--cert-dir", self.directory / "certificates", "--token-auth-file", self.directory / "tokens.csv",
            "--authorization-mode", "Node,RBAC", "--service-cluster-ip-range", SERVICES,
            "--service-account-issuer", "https://kubernetes.default", "--service-account-key-file", key,
            "--service-account-signing-key-file", key, "--endpoint-reconciler-type", "none")
        self._wait("the API answers", lambda: self.kubectl("get", "--raw", "/readyz", check=False) == "ok")
        self.run_in_background(
            "kube-controller-manager", self.programs["kube-controller-manager"],
            "--kubeconfig", self.kubeconfig("system:kube-controller-manager"), "--leader-elect=false",
            "--use-service-account-credentials",
            "--bind-address", "127.0.0.1", "--service-account-private-key-file", key,
            "--controllers", "daemonset-controller,serviceaccount-controller,namespace-controller,"
                             "garbage-collector-controller,taint-eviction-controller,node-lifecycle-controller")
        self.run_in_background(
            "kube-scheduler", self.programs["kube-scheduler"], "--kubeconfig",
            self.kubeconfig("system:kube-scheduler"), "--leader-elect=false", "--bind-address", "127.0.0.1")

    def start_kubelet(self) -> None:
        """What it runs has to be imported before."""
        self.run_in_background(
            "kubelet", self.programs["kubelet"], "--config", self.directory / "kubelet.yaml", "--root-dir",
            self.directory / "lib" / "kubelet", "--kubeconfig", self.kubeconfig(f"system:node:{NODE}"),
            "--hostname-override", NODE, "--node-ip", ADDRESS, "--v", "2")
        self._wait("the node is ready", lambda: any(
            one["type"] == "Ready" and one["status"] == "True"
            for node in self.objects("nodes") for one in node["status"].get("conditions", [])))

    def import_image(self, archive: Path) -> None:
        self._wait("containerd answers", lambda: self.enter(
            self.ctr, "--address", "/run/containerd/containerd.sock", "version").returncode == 0)
        done = self.enter(self.ctr, "--address", "/run/containerd/containerd.sock", "--namespace", "k8s.io", "images",
                          "import", archive)
        assert done.returncode == 0, done.stderr + done.stdout

    # ---- what one does with it ----

    def enter(self, *command: object, given: str | None = None, patience: float = PATIENCE
              ) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end in the node's namespaces."""
        return subprocess.run(["nsenter", "-t", str(self.holder.pid), "-m", "-n", "--", *map(str, command)],
                              input=given, stdin=None if given is not None else subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=patience)

    def network(self) -> contextlib.AbstractContextManager[None]:
        """What the block's thread opens is in the node's network."""
        return inside_network(Path(f"/proc/{self.holder.pid}/ns/net"))

    def kubectl(self, *arguments: object, given: str | None = None, check: bool = True) -> str:
        """What it prints, or with check=False and a failure what it says."""
        done = self.enter(self.programs["kubectl"], "--kubeconfig", self.kubeconfig("admin"), "--cache-dir",
                          self.directory / "kubectl", *arguments, given=given)
        assert done.returncode == 0 or not check, f"kubectl {' '.join(map(str, arguments))}: {done.stderr}"
        return done.stdout if done.returncode == 0 else done.stderr

    def apply(self, manifest: str, check: bool = True) -> str:
        """fieldValidation=Strict: a field that the API does not know is an error."""
        return self.kubectl("apply", "--validate=strict", "--filename", "-", given=manifest, check=check)

    def objects(self, kind: str, namespace: str = "") -> list[Object]:
        where = ["--namespace", namespace] if namespace else []
        told = self.kubectl("get", kind, "--output", "json", *where, check=False)
        with contextlib.suppress(json.JSONDecodeError):
            items: list[Object] = json.loads(told)["items"]
            return items
        return []

    def ready_pod(self, namespace: str, labels: dict[str, str]) -> Object:
        """Waits for the one pod with these labels until all its containers are ready."""
        found: list[Object] = []

        def ready() -> bool:
            found[:] = [pod for pod in self.objects("pods", namespace)
                        if labels.items() <= pod["metadata"].get("labels", {}).items()]
            return len(found) == 1 and any(one["type"] == "Ready" and one["status"] == "True"
                                           for one in found[0]["status"].get("conditions", []))

        self._wait(f"a pod with {labels} in {namespace} is ready", ready)
        return found[0]

    def _wait(self, what: str, true: Callable[[], object]) -> None:
        def alive() -> object:
            assert self.holder.poll() is None, f"{what}: the node has ended\n{self.story()}"
            return true()

        wait_until(what, alive, why=self.story)

    def story(self) -> str:
        """The ends of all logs, and the events."""
        told = []
        for log in sorted(self.directory.glob("*.log")) + sorted(self.directory.glob("log/pods/*/*/*.log")):
            lines = log.read_text(errors="replace").splitlines()[-12:]
            told += [f"== {log.relative_to(self.directory)}", *(line[:400] for line in lines)]
        events = self.enter(self.programs["kubectl"], "--kubeconfig", self.kubeconfig("admin"), "get", "events", "-A",
                            "-o", "custom-columns=A:.involvedObject.name,B:.reason,C:.message", "--no-headers",
                            patience=20) if self.holder.poll() is None else None
        return "\n".join(told + (["== events", events.stdout[-3000:]] if events else []))

    def stop(self) -> None:
        assert self.holder.stdin
        with contextlib.suppress(OSError):
            self.holder.stdin.close()
        try:
            self.holder.wait(60)
        except subprocess.TimeoutExpired:
            processes.kill(self.holder)
            raise
        assert {name: Path("/proc/sys", name).read_text() for name in self.settings} == self.settings
        assert str(self.directory) not in Path("/proc/self/mountinfo").read_text()


CONTAINERD = """\
version = 2
root = "{lib}"
state = "{run}"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/pause:1"
  # a machine may not let a process lower its oom_score_adj
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{networks}"
"""
