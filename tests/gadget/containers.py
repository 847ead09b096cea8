# SPDX-License-Identifier: GPL-2.0
"""Containers with the names that a kubelet gives, run by Debian's containerd and runc without a Kubernetes."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest
from harness import PATIENCE, Lab, Lines
from images import lab as lab_image

NAMESPACE, CONTAINER = "shop", "lab"
IMAGE = "docker.io/library/nagle-lab:1"
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
#: In s, for containerd's start; an emulated machine takes half a minute.
START = 180.0

#: Its socket is where Inspektor Gadget looks for it. Native snapshots are copies, and want nothing of the kernel.
CONFIGURATION = """\
version = 2
root = "{directory}/lib"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.grpc.v1.cri"]
"""


class Containerd:
    """Keeps its files below the directory. Has the image of the lab, in the namespace that a kubelet's containers have.
    """

    def __init__(self, directory: Path) -> None:
        for program, package in (("containerd", "containerd"), ("ctr", "containerd"), ("runc", "runc")):
            if not shutil.which(program, path=PATH):
                pytest.skip(f"{program} cannot be had: Debian's {package} is not installed")
        self.environment = {**os.environ, "PATH": PATH, "CONTAINERD_SNAPSHOTTER": "native",
                            "CONTAINERD_NAMESPACE": "k8s.io"}
        configuration = directory / "containerd.toml"
        configuration.write_text(CONFIGURATION.format(directory=directory))
        self.process = subprocess.Popen(["containerd", "--config", configuration], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                        env=self.environment)
        self.errors = Lines(self.process.stderr)
        try:
            self.errors.wait_for("containerd successfully booted", START)
            done = subprocess.run(["ctr", "images", "import", lab_image(directory)], env=self.environment,
                                  capture_output=True, text=True, timeout=START)
            assert done.returncode == 0, done.stdout + done.stderr
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()


class Pod(Lab):
    """The lab in a pod's container, whose labels are those that a kubelet and containerd's CRI give."""

    program = "/nagle-lab-static"

    def __init__(self, containerd: Containerd, name: str, scenario: str, *arguments: str) -> None:
        self.name, self.uid, self.container = name, str(uuid.uuid4()), secrets.token_hex(32)
        labels = {
            # kubelet: newContainerLabels(); CRI: containerKindLabel
            "io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": NAMESPACE,
            "io.kubernetes.pod.uid": self.uid, "io.kubernetes.container.name": CONTAINER,
            "io.cri-containerd.kind": "container",
        }
        annotations = {
            # CRI: pkg/cri/annotations
            "io.kubernetes.cri.sandbox-name": name, "io.kubernetes.cri.sandbox-namespace": NAMESPACE,
            "io.kubernetes.cri.sandbox-uid": self.uid, "io.kubernetes.cri.container-name": CONTAINER,
            "io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.image-name": IMAGE,
        }
        options = [word for option, values in (("--label", labels), ("--annotation", annotations))
                   for key, value in values.items() for word in (option, f"{key}={value}")]
        cgroup = f"/kubepods/besteffort/pod{self.uid}/{self.container}"
        super().__init__(scenario, *arguments, prefix=["env", f"PATH={PATH}", *(
            f"{key}={value}" for key, value in containerd.environment.items() if key.startswith("CONTAINERD_")),
            "ctr", "run", "--rm", "--cgroup", cgroup, *options, IMAGE, self.container])

    def _keep_networks(self) -> None:
        """The processes have other numbers here, and no audit asks for their network."""
