"""Images of static programs, as a release has them; tests/integration/test_real_image.py runs the operator's."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

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
