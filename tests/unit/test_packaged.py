"""Programs of an installed package: what is refused, and what reaches the cache."""

from __future__ import annotations

import dataclasses
import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenantry.api.errors import LocalError
from tenantry.local import build, packaged, sources
from tenantry.local.build import Binaries
from tenantry.local.progress import SilentProgress
from testkit import tools

wheels = tools.load("wheels")

Json = dict[str, Any]
FINGERPRINT = build.fingerprint(sources.root())
PROGRAM, TEXT = b"program" * 1000, b"text"


class Lines(SilentProgress):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        """Keep it."""
        self.said.append(text)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package of this version, and an empty cache."""
    source = tmp_path / FINGERPRINT
    source.mkdir()
    (source / "controlplane").write_bytes(PROGRAM)
    (source / "controlplane").chmod(0o755)
    (source / "stages.yaml").write_bytes(TEXT)
    (source / "build.json").write_text('{"go": "go1.26.8", "seconds": 1.0}')
    folder = tmp_path / "site" / "tenantry_controlplane"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    wheels.pack(Binaries(source), ("controlplane", "stages.yaml"), {"kubectl": "controlplane"}, folder)
    monkeypatch.setattr(sys, "path", [str(folder.parent), *sys.path])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delitem(sys.modules, "tenantry_controlplane", raising=False)
    return folder


def _begin() -> None:
    raise LocalError("a build began")


PRODUCT = dataclasses.replace(build.CONTROL_PLANE, check=_begin)
"""The programs, on a machine that cannot build them."""


def change(package: Path, edit: Callable[[Json], object]) -> None:
    """Edit the listing of a package."""
    listing = json.loads((package / packaged.LISTING).read_text())
    edit(listing)
    (package / packaged.LISTING).write_text(json.dumps(listing))


def test_a_package_of_this_version_saves_the_build(package: Path) -> None:
    found = build.ensure(SilentProgress(), PRODUCT)
    assert found.folder.name == FINGERPRINT
    assert found.controlplane.read_bytes() == found.kubectl.read_bytes() == PROGRAM
    modes = {each.name: each.stat().st_mode & 0o777 for each in found.folder.iterdir() if not each.is_symlink()}
    assert modes["controlplane"] == 0o755
    assert modes["stages.yaml"] == 0o644
    assert json.loads((found.folder / "build.json").read_text())["go"] == "go1.26.8"
    # From now on, the package is not read any more.
    (package / packaged.LISTING).unlink()
    assert build.ensure(SilentProgress(), PRODUCT) == build.built() == found


def test_a_package_of_other_programs_is_named_and_a_build_begins(package: Path) -> None:
    change(package, lambda listing: listing.update(fingerprint="0" * 16, version="0.0.1"))
    progress = Lines()
    with pytest.raises(LocalError, match="a build began"):
        build.ensure(progress, PRODUCT)
    (line,) = progress.said
    assert '"tenantry-controlplane" has programs for Tenantry 0.0.1' in line
    assert "pip install" in line


def test_another_build_is_made_on_request(package: Path) -> None:
    assert package.is_dir()
    with pytest.raises(LocalError, match="a build began"):
        build.ensure(SilentProgress(), PRODUCT, again=True)


def test_without_a_package_a_build_begins(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(package.parent)])
    with pytest.raises(LocalError, match="a build began"):
        build.ensure(SilentProgress(), PRODUCT)


def _file(**changes: object) -> Callable[[Json], object]:
    return lambda listing: listing["files"][0].update(changes)


EDITS: list[tuple[Callable[[Json], object], str]] = [
    (_file(name="../controlplane"), "plain file name"),
    (_file(name="/etc/passwd"), "plain file name"),
    (_file(name=".."), "plain file name"),
    (_file(name="a\n"), "plain file name"),
    (_file(name=""), "plain file name"),
    (_file(name="stages.yaml"), "listed twice"),
    (_file(name="kubectl"), "listed twice"),
    (lambda listing: listing["files"][1].update(name="kwok"), '"kwok.gz": it is missing'),
    (_file(bytes=len(PROGRAM) - 1), "digest"),
    (_file(bytes=len(PROGRAM) + 1), "digest"),
    (_file(bytes=-1), "bytes"),
    (_file(bytes=2**40), "bytes"),
    (_file(sha256="0" * 64), "digest"),
    (_file(mode=0o4755), "unknown field"),
    (lambda listing: listing["links"].update(kubectl="/bin/sh"), "leads to no file"),
    (lambda listing: listing["links"].update({"../kubectl": "controlplane"}), "plain file name"),
    (lambda listing: listing.pop("files"), "missing required field"),
]


@pytest.mark.parametrize(("edit", "words"), EDITS)
def test_a_listing_that_does_not_match_is_refused(
    package: Path, tmp_path: Path, edit: Callable[[Json], object], words: str
) -> None:
    change(package, edit)
    refused(words, tmp_path)


def refused(words: str, tmp_path: Path) -> None:
    """Check that the package is refused with what to do, and leaves nothing behind."""
    with pytest.raises(LocalError, match=words) as error:
        build.ensure(SilentProgress(), PRODUCT)
    assert 'the package "tenantry-controlplane" is damaged' in str(error.value)
    assert "pip install --force-reinstall" in str(error.value)
    assert build.built() is None
    assert [each.name for each in (tmp_path / "cache/tenantry/bin").iterdir()] == ["build.lock"]


DAMAGES: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda data: data[: len(data) // 2], "ends too early"),
    (lambda _: b"", "ends too early"),
    (lambda data: b"x" + data[1:], "incorrect header"),
    (lambda data: data[:-8] + bytes(8), "incorrect data check"),
    (lambda _: gzip.compress(PROGRAM[:-1] + b"X"), "digest"),
    # Far more than is listed: the rest is not decompressed.
    (lambda _: gzip.compress(bytes(2**28), 1), "digest"),
]


@pytest.mark.parametrize(
    ("damage", "words"), DAMAGES, ids=["half", "empty", "not-gzip", "checksum", "changed", "larger"]
)
def test_a_damaged_file_is_refused(package: Path, tmp_path: Path, damage: Callable[[bytes], bytes], words: str) -> None:
    file = package / "controlplane.gz"
    file.write_bytes(damage(file.read_bytes()))
    refused(words, tmp_path)


def test_a_listing_that_is_no_json_is_refused(package: Path, tmp_path: Path) -> None:
    (package / packaged.LISTING).write_text("{")
    refused("programs.json", tmp_path)


def test_the_same_programs_give_the_same_files(package: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    again.mkdir()
    wheels.pack(Binaries(tmp_path / FINGERPRINT), ("controlplane", "stages.yaml"), {"kubectl": "controlplane"}, again)
    for each in again.iterdir():
        assert each.read_bytes() == (package / each.name).read_bytes()
