"""A dry run of a release makes its files, which name the version, and commits nothing. The wheels need no build.

tests/integration/test_images.py makes the images.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from tenantry.local import build
from tenantry.local.progress import SilentProgress
from testkit import tools
from testkit.helm import Helm

release, wheels = tools.load("release"), tools.load("wheels")
VERSION = "99.0.0"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The files of a release; the checkout is as before."""
    build.ensure(SilentProgress())
    before = release.run("git", "status", "--porcelain", folder=tools.ROOT)
    found = release.release(VERSION, tmp_path_factory.mktemp("release"), is_dry=True, has_images=False)
    assert release.run("git", "status", "--porcelain", folder=tools.ROOT) == before
    return list(found)


def one(made: list[Path], start: str, end: str) -> Path:
    """Return the file with this start and end of its name."""
    (found,) = [each for each in made if each.name.startswith(start) and each.name.endswith(end)]
    return found


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of main without what a build needs."""
    folder = tmp_path / "checkout"
    file = folder / "src/tenantry/__init__.py"
    file.parent.mkdir(parents=True)
    file.write_text('__version__ = "0.1.0"\n')
    (folder / "pyproject.toml").write_text("")
    me = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    for words in (("init", "--quiet", "--initial-branch", "main"), ("add", "--all"), (*me, "commit", "-qm", "first")):
        release.run("git", *words, folder=folder)
    return folder


def test_a_release_that_fails_leaves_the_checkout_as_it_is(checkout: Path, tmp_path: Path) -> None:
    """Otherwise, the next attempt would be refused because of its changes."""
    with pytest.raises(release.ReleaseError, match=r"generate\.py"):
        release.release(VERSION, tmp_path / "out", is_dry=False, root=checkout)
    assert release.run("git", "status", "--porcelain", folder=checkout) == ""
    assert not (tmp_path / "out").exists()
    out = tmp_path / "full"
    out.mkdir()
    (out / "tenantry-0.1.0.tar.gz").touch()
    with pytest.raises(release.ReleaseError, match="has files, of which some may be of another version"):
        release.release(VERSION, out, is_dry=False, root=checkout)
    assert release.run("git", "status", "--porcelain", folder=checkout) == ""


@pytest.mark.long
def test_a_dry_run_makes_the_files(made: list[Path]) -> None:
    wheel = one(made, f"tenantry-{VERSION}-py3-none-any", ".whl")
    assert one(made, f"tenantry-{VERSION}.tar", ".gz")
    with zipfile.ZipFile(wheel) as files:
        inside = files.namelist()
        metadata = files.read(f"tenantry-{VERSION}.dist-info/METADATA").decode()
    assert "tenantry/cli/main.py" in inside
    assert "tenantry/_sources/go/hosted/main.go" in inside
    assert f"Requires-Dist: tenantry-controlplane=={VERSION}; extra == 'local'" in metadata
    sums = one(made, "SHA256SUMS", "")
    listed = dict(line.split("  ")[::-1] for line in sums.read_text().splitlines())
    assert set(listed) == {each.name for each in made} - {sums.name}
    for name, digest in listed.items():
        assert hashlib.sha256((sums.parent / name).read_bytes()).hexdigest() == digest
    assert f"image: tenantry:{VERSION}" in one(made, f"tenantry-{VERSION}-install", ".yaml").read_text()
    with tarfile.open(one(made, f"tenantry-{VERSION}-deploy", ".tar.gz")) as others:
        agent = others.extractfile("deploy/netpol-agent.yaml")
        assert agent is not None
        assert VERSION in agent.read().decode()
    assert json.loads(one(made, f"tenantry-{VERSION}.cdx", ".json").read_text())["specVersion"] == "1.6"


@pytest.mark.long
async def test_the_chart_has_the_version(made: list[Path], tmp_path: Path) -> None:
    text = await Helm(tmp_path)("show", "chart", str(one(made, f"tenantry-{VERSION}", ".tgz")))
    metadata = yaml.safe_load(text)
    assert (metadata["version"], metadata["appVersion"]) == (VERSION, VERSION)


class Installed:
    """Both wheels, unpacked as pip does, and an empty home folder without Go.

    Args:
        made: Files with the wheels among them.
        folder: An empty folder.
    """

    def __init__(self, made: list[Path], folder: Path) -> None:
        self.site = folder / "site"
        self.home = folder / "home"
        for wheel in (one(made, "tenantry-", ".whl"), one(made, "tenantry_controlplane-", ".whl")):
            with zipfile.ZipFile(wheel) as files:
                files.extractall(self.site)  # noqa: S202 - a wheel that this test made

    def build(self) -> subprocess.CompletedProcess[str]:
        """Run `tenantry local build`."""
        environment = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(self.site)}
        # Where a build would begin, pip must not fetch a toolchain.
        environment |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
        command = (sys.executable, "-m", "tenantry", "local", "build")
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Both wheels of this checkout, as a release has them, but compressed fast."""
    out = tmp_path_factory.mktemp("wheels")
    return [wheels.pure(out), wheels.controlplane(out, level=1)]


@pytest.fixture(params=["packed", pytest.param("made", marks=pytest.mark.long)])
def installed(request: pytest.FixtureRequest, tmp_path: Path) -> Installed:
    return Installed(request.getfixturevalue(request.param), tmp_path)


def test_the_installed_programs_are_those_of_the_build(installed: Installed) -> None:
    done = installed.build()
    assert done.returncode == 0, done.stderr
    assert "building" not in done.stderr
    folder = Path(done.stdout.strip())
    assert folder.is_relative_to(installed.home)
    ours = build.ensure(SilentProgress())
    assert folder.name == ours.folder.name
    for each in ("controlplane", "kubectl", "kwok", "kwok-stages.yaml"):
        assert hashlib.sha256((folder / each).read_bytes()).digest() == (
            hashlib.sha256((ours.folder / each).read_bytes()).digest()
        )
        assert os.access(folder / each, os.X_OK) == os.access(ours.folder / each, os.X_OK)
    client = subprocess.run(
        [folder / "kubectl", "version", "--client"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "Client Version: v1." in client.stdout


def test_a_damaged_wheel_is_refused(installed: Installed) -> None:
    file = installed.site / "tenantry_controlplane" / "kwok.gz"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    done = installed.build()
    assert done.returncode == 4, done.stderr
    assert 'the package "tenantry-controlplane" is damaged: "kwok.gz"' in done.stderr
    assert [each.name for each in (installed.home / ".cache/tenantry/bin").iterdir()] == ["build.lock"]
