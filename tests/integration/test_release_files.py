"""A dry run of a release makes its files, which name the version, and commits nothing."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

from testkit import tools

release = tools.load("release")


def test_a_dry_run_makes_the_files_and_leaves_the_checkout_as_it_is(tmp_path: Path) -> None:
    before = release.run("git", "status", "--porcelain", folder=tools.ROOT)
    version = "99.0.0"
    made = release.release(version, tmp_path, is_dry=True)
    assert release.run("git", "status", "--porcelain", folder=tools.ROOT) == before
    names = {each.name for each in made}
    wheel = tmp_path / f"tenantry-{version}-py3-none-any.whl"
    assert {wheel.name, f"tenantry-{version}.tar.gz", f"tenantry-{version}.cdx.json", "SHA256SUMS"} <= names
    with zipfile.ZipFile(wheel) as files:
        inside = files.namelist()
    assert "tenantry/cli/main.py" in inside
    assert "tenantry/_sources/go/hosted/main.go" in inside
    for line in (tmp_path / "SHA256SUMS").read_text().splitlines():
        digest, _, name = line.partition("  ")
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == digest
    assert f"image: tenantry:{version}" in (tmp_path / f"tenantry-{version}-install.yaml").read_text()
    assert json.loads((tmp_path / f"tenantry-{version}.cdx.json").read_text())["specVersion"] == "1.6"
