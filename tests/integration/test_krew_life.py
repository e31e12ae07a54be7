"""The real krew installs the plugin from its archive, kubectl runs it and completes its words.

krew removes plugins only where it has its index of plugins, which is on the internet.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tenantry import __version__
from tenantry.local import build
from tenantry.local.cluster import LocalCluster
from tenantry.local.progress import SilentProgress
from testkit import tools

pytest_plugins = ["testkit.fixtures"]
pytestmark = pytest.mark.long
"""It downloads the libraries of four versions of Python."""

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, tenancy: LocalCluster) -> Run:
    """Run a command of an empty home folder, with kubectl, krew's plugins and this Python; return its output."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    programs = {
        "kubectl": build.ensure(SilentProgress()).kubectl,
        "kubectl-krew": build.ensure(SilentProgress(), build.KREW).krew,
        "python3": Path(sys.executable).resolve(),
    }
    for name, target in programs.items():
        (bin_ / name).symlink_to(target)
    environment = {
        "HOME": str(tmp_path),
        "KREW_ROOT": str(tmp_path / "krew"),
        "KREW_NO_UPGRADE_CHECK": "1",
        "KUBECONFIG": str(tenancy.kubeconfig_path),
        "PATH": os.pathsep.join([str(bin_), str(tmp_path / "krew" / "bin"), "/usr/bin", "/bin"]),
    }

    def call(*command: str) -> str:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    return call


def test_krew_installs_the_plugin(run: Run, tmp_path: Path, name: str) -> None:
    krew, wheels = tools.load("krew"), tools.load("wheels")
    archive, manifest = krew.plugin(wheels.pure(tmp_path), tmp_path)
    again = tmp_path / "again"
    again.mkdir()
    assert krew.archive(wheels.pure(again), again).read_bytes() == archive.read_bytes()
    run("kubectl", "krew", "install", f"--manifest={manifest}", f"--archive={archive}")
    assert __version__ in run("kubectl", "tenantry", "--version")
    run("kubectl", "tenantry", "tenant", "create", name, "--owner", "ada")
    assert name in run("kubectl", "tenantry", "tree", name)
    store = tmp_path / "krew" / "store" / "tenantry" / f"v{__version__}"
    (tmp_path / "krew" / "bin" / krew.COMPLETION).symlink_to(store / krew.COMPLETION)
    assert "tenant\t" in run("kubectl", "__complete", "tenantry", "ten")
