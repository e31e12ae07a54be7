"""What an installed Tenantry consists of."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The files in the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as found:
        return set(found.namelist())


def test_the_wheel_has_the_package_and_the_sources_of_the_local_control_plane(names: set[str]) -> None:
    expected = {
        "tenantry/cli/main.py",
        "tenantry/_sources/go/controlplane/go.mod",
        "tenantry/_sources/requirements/go.txt",
    }
    assert expected <= names


def test_the_wheel_has_no_tests_and_no_builders_of_tests(names: set[str]) -> None:
    tops = {name.split("/", 1)[0] for name in names if ".dist-info/" not in name}
    assert tops == {"tenantry"}
    assert not [name for name in names if "testkit" in name or name.startswith("tenantry/testing/")]
    assert not [name for name in names if name.rsplit("/", 1)[-1].startswith("test_") and name.endswith(".py")]
