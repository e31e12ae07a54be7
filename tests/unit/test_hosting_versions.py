"""Versions of Kubernetes of hosted control planes, and the programs for them (H01)."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from tenantry.api.errors import InputError
from tenantry.hosting import versions
from tenantry.hosting.versions import HostedVersion
from tenantry.local import build, hostedversions, sources

KNOWN = (
    HostedVersion(name="1.34", kubernetes="1.34.9"),
    HostedVersion(name="1.35", kubernetes="1.35.4"),
    HostedVersion(name="1.36", kubernetes="1.36.3", is_default=True),
)


@pytest.mark.parametrize(("name", "found"), [("", "1.36.3"), ("1.35", "1.35.4"), ("1.34", "1.34.9")])
def test_a_version_is_found_by_its_minor_version(name: str, found: str) -> None:
    assert versions.find(KNOWN, name).kubernetes == found


@pytest.mark.parametrize("name", ["1.33", "1.36.3", "1.3", "2.36", "x"])
def test_an_unknown_version_is_refused_with_those_that_there_are(name: str) -> None:
    with pytest.raises(InputError, match=r"is not a version .*choose 1\.34, 1\.35, 1\.36$"):
        versions.find(KNOWN, name)


@pytest.mark.parametrize(
    ("running", "wanted", "words"),
    [
        ("1.35.4", "1.36.3", ""),
        ("1.36.3", "1.36.4", ""),
        # A Tenantry that is older again: patch releases read the same objects.
        ("1.36.4", "1.36.3", ""),
        ("1.9.1", "1.10.0", ""),
        ("1.36.3", "1.35.4", "restore a snapshot that was taken with 1.35"),
        ("1.34.9", "1.36.3", "choose 1.35 first"),
        ("1.36.3", "2.0.0", "choose 1.37 first"),
        ("2.0.0", "1.36.3", "restore a snapshot"),
        ("x", "1.36.3", "is not a version"),
    ],
)
def test_one_minor_version_at_a_time_and_none_back(running: str, wanted: str, words: str) -> None:
    if not words:
        versions.check_way(running, wanted)
        return
    with pytest.raises(InputError, match=words):
        versions.check_way(running, wanted)


@pytest.mark.parametrize(("running", "found"), [("1.34.1", "1.35"), ("1.35.4", "1.36"), ("1.36.3", ""), ("1.32.0", "")])
def test_the_version_after_the_one_that_runs(running: str, found: str) -> None:
    following = versions.following(KNOWN, running)
    assert (following.name if following else "") == found


def test_each_version_has_module_files_and_one_is_the_default() -> None:
    """The default is that of go.mod, so that its program is not built anew for another version."""
    known = hostedversions.known()
    assert [each.is_default for each in known] == [False] * (len(known) - 1) + [True]
    assert [versions.minor(each.kubernetes) for each in known] == [each.name for each in known]
    assert hostedversions.product("") is build.HOSTED
    assert hostedversions.product(known[-1].name) is build.HOSTED
    # A minor version after the other: upgrades skip none.
    for before, after in itertools.pairwise(known):
        versions.check_way(before.kubernetes, after.kubernetes)


def test_programs_of_versions_are_kept_apart(tmp_path: Path) -> None:
    """Each is named by the sources and by the versions of its own modules."""
    shutil.copytree(sources.root() / "go" / "hosted", tmp_path / "go" / "hosted")
    first, last = (
        hostedversions.product(each.name) for each in (hostedversions.known()[0], hostedversions.known()[-1])
    )

    def names() -> tuple[str, str]:
        return build.fingerprint(tmp_path, first), build.fingerprint(tmp_path, last)

    before = names()
    assert len(set(before)) == 2
    other = next((tmp_path / "go" / "hosted").glob("go-*.sum"))
    other.write_text(other.read_text() + "\n")
    changed = names()
    assert (changed[0] != before[0], changed[1]) == (True, before[1])
    with (tmp_path / "go" / "hosted" / "go.sum").open("a") as text:
        text.write("\n")
    assert (names()[0], names()[1] != changed[1]) == (changed[0], True)


def test_a_program_that_is_not_built_says_how_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = hostedversions.known()[0].name
    with pytest.raises(Exception, match=f"`tenantry local build --hosted-version {first}`"):
        hostedversions.built(first)
    with pytest.raises(Exception, match="`tenantry local build --with-hosted`"):
        hostedversions.built("")
    with pytest.raises(InputError, match="is not a version"):
        hostedversions.built("1.20")
