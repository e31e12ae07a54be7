"""The plugin for krew: where its files lie, and what it reports where it cannot run. test_krew_life.py installs it."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from testkit import tools

krew = tools.load("krew")


@pytest.mark.parametrize(
    ("wheel", "folder"),
    [
        ("click-8.5.1-py3-none-any.whl", "any"),
        ("cryptography-50.0.2-cp311-abi3-manylinux_2_28_x86_64.whl", "any"),
        ("aiohttp-3.14.5-cp312-cp312-manylinux2014_x86_64.manylinux_2_17_x86_64.manylinux_2_28_x86_64.whl", "3.12"),
        ("google_re2-1.1.20251105-1-cp312-cp312-manylinux_2_27_x86_64.whl", "3.12"),
    ],
)
def test_what_is_built_for_one_python_lies_in_its_folder(wheel: str, folder: str) -> None:
    assert krew.place(wheel, "3.12") == folder


def test_the_manifest_names_the_archive_and_its_digest(tmp_path: Path) -> None:
    archive = tmp_path / "tenantry-0.1.0-krew-linux-arm64.tar.gz"
    archive.write_bytes(b"files")
    found = yaml.safe_load(yaml.safe_dump(krew.manifest(archive)))
    # krew takes no other names and versions. Source: krew's developer guide.
    assert re.fullmatch(r"v\d+\.\d+\.\d+.*", found["spec"]["version"])
    (platform,) = found["spec"]["platforms"]
    assert platform["selector"]["matchLabels"] == {"os": "linux", "arch": "arm64"}
    assert platform["sha256"] == hashlib.sha256(b"files").hexdigest()
    assert platform["uri"].endswith(archive.name)
    assert platform["bin"] == "kubectl-tenantry"


def test_another_python_is_named_with_those_that_work(tmp_path: Path) -> None:
    program = Path(shutil.copy(tools.ROOT / "deploy" / "krew" / krew.PROGRAM, tmp_path))
    for each in ("any", "3.9", "3.10"):
        (tmp_path / "lib" / each).mkdir(parents=True)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert (done.returncode, done.stdout) == (1, "")
    assert f"python3 is Python {here}, and this plugin has the libraries of 3.9, 3.10:" in done.stderr
