"""Images as a release has them; tests/integration/test_real_image.py runs the operator's on real nodes."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tenantry import __version__
from tenantry.local import build
from tenantry.local.progress import SilentProgress
from tenantry.local.real import images as ociimages
from testkit import tools

images = tools.load("images")


@pytest.mark.skipif(build.built(build.DNS) is None, reason="CoreDNS is not built: `tenantry local build --with-dns`")
def test_the_same_programs_give_the_same_archive_and_bill(tmp_path: Path) -> None:
    build.ensure(SilentProgress(), build.DNS)
    made = images.write("coredns", tmp_path / "a", repository="registry.example/tenantry")
    again = images.write("coredns", tmp_path / "b", repository="registry.example/tenantry")
    assert [each.read_bytes() for each in made] == [each.read_bytes() for each in again]
    archive, bill = made
    assert ociimages.reference_of(archive) == f"registry.example/tenantry/coredns:{__version__}"
    components = json.loads(bill.read_text())["components"]
    assert {value["value"] for each in components for value in each["properties"]} == {"coredns"}
    assert any(each["name"] == "github.com/coredns/coredns" for each in components)
    with tarfile.open(archive) as layout:
        assert {"oci-layout", "index.json"} <= set(layout.getnames())


def _unpacked(archive: Path, root: Path) -> dict[str, Any]:
    """Unpack the layers of an image into a folder, and return its configuration."""
    with tarfile.open(archive) as layout:

        def blob(digest: str) -> bytes:
            found = layout.extractfile(f"blobs/{digest.replace(':', '/')}")
            assert found is not None
            return found.read()

        index = json.loads(layout.extractfile("index.json").read())  # type: ignore[union-attr]
        manifest = json.loads(blob(index["manifests"][0]["digest"]))
        for each in manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(blob(each["digest"]))) as layer:
                layer.extractall(root, filter="tar")
        return json.loads(blob(manifest["config"]["digest"]))["config"]


@pytest.mark.long  # pip and apt-get fetch what the image consists of
@pytest.mark.timeout(900)
@pytest.mark.skipif(os.geteuid() != 0, reason="chroot and network namespaces need root")
def test_the_image_of_the_network_policy_agent_has_what_the_agent_runs(tmp_path: Path) -> None:
    """Nft loads a table, in a network namespace of its own, and the agent starts."""
    archive, bill = images.write("netpol", tmp_path)
    root = tmp_path / "root"
    config = _unpacked(archive, root)
    assert (config["User"], config["Cmd"]) == ("0:0", ["netpol-agent"])
    # By their paths: the environment is that of the image.
    inside = (str(shutil.which("unshare")), "--net", str(shutil.which("chroot")), str(root))
    table = "add table inet t; add chain inet t c { type filter hook forward priority 0; policy drop; }; list ruleset"
    listed = subprocess.run(
        (*inside, "/usr/sbin/nft", "-f", "-"), input=table, capture_output=True, text=True, check=True, timeout=60
    )
    assert "policy drop" in listed.stdout
    environment = dict(each.split("=", 1) for each in config["Env"])
    python = config["Entrypoint"][0]
    found = (*inside, python, "-c", "import shutil; print(shutil.which('nft'))")
    assert subprocess.check_output(found, env=environment, text=True, timeout=60) == "/usr/sbin/nft\n"
    agent = (*inside, *config["Entrypoint"], *config["Cmd"], "--node", "n", "--kubeconfig", "/missing")
    done = subprocess.run(agent, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "'/missing' does not exist" in done.stderr) == (3, True)
    components = {each["name"] for each in json.loads(bill.read_text())["components"]}
    assert {"nftables", "libnftables1", "msgspec", "python3.11-minimal"} <= components
    assert not (root / "bin/sh").exists()
