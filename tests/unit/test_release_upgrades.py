"""What earlier releases stored stays valid and whole: an upgrade converts nothing, and loses no field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tenantry.api import marks
from tenantry.api.errors import ConfigError
from tenantry.api.kinds import KINDS
from tenantry.api.tenant import Tenant
from tenantry.api.versionorder import order
from tenantry.engine.cluster import CRDS
from tenantry.install import manifests
from tenantry.install.apply import found
from tenantry.install.upgrade import require_not_newer
from tenantry.world.structure import read
from testkit import tools
from testkit.model import World
from testkit.worldclient import WorldClient

releasefixtures, releases = tools.load("releasefixtures"), tools.load("release")

Json = dict[str, Any]

RELEASES = sorted(Path(releasefixtures.FOLDER).iterdir())
BY_KIND = {kind.resource.kind: kind for kind in KINDS}
NARROWER = {"maxLength": -1, "maxItems": -1, "maxProperties": -1, "maximum": -1, "minLength": 1, "minItems": 1}
"""Bounds of a value: -1 if a smaller bound refuses what was stored, 1 if a larger one does."""


def losses(before: Json, after: Json, path: str = "") -> Iterator[str]:
    """Yield what a schema refuses or drops that an earlier one stored."""
    if before.get("type") != after.get("type"):
        yield f"{path}: is {after.get('type')}, was {before.get('type')}"
    if "enum" in after and not set(before.get("enum", ())) <= set(after["enum"]):
        yield f"{path}: has no longer {sorted(set(before.get('enum', ())) - set(after['enum']))}"
    for bound, sign in NARROWER.items():
        if bound in after and (bound not in before or (after[bound] - before[bound]) * sign > 0):
            yield f"{path}: {bound} is {after[bound]}, was {before.get(bound)}"
    yield from lost_fields(before, after, path)
    for part in ("items", "additionalProperties"):
        if isinstance(before.get(part), dict) and isinstance(after.get(part), dict):
            yield from losses(before[part], after[part], f"{path}[]")


def lost_fields(before: Json, after: Json, path: str) -> Iterator[str]:
    had: Json = before.get("properties", {})
    has: Json = after.get("properties", {})
    for name in set(after.get("required", ())) - set(before.get("required", ())):
        if "default" not in has[name]:
            yield f"{path}.{name}: is required, and was not"
    for name, inner in had.items():
        if name not in has:
            yield f"{path}.{name}: is not known any more"
        else:
            yield from losses(inner, has[name], f"{path}.{name}")


def schemas(release: Path) -> dict[str, Json]:
    return msgspec.json.decode((release / "schemas.json").read_bytes())


def without_fixture(changelog: str, tags: Iterable[str]) -> set[str]:
    """Return the versions in headings of a changelog, and in tags, whose stored objects are not kept."""
    words = {word for line in changelog.splitlines() if line.startswith("#") for word in line.split()}
    named = {each for each in (*words, *(tag.removeprefix("v") for tag in tags)) if order(each) is not None}
    return named - {each.name for each in RELEASES}


def test_each_release_has_its_fixture() -> None:
    """Decision 101: without it, no later version knows what that release stored. The release script makes it."""
    changelog = tools.ROOT / "CHANGELOG.md"
    tags = releases.run("git", "tag", "--list", "v*", folder=tools.ROOT).split()
    assert without_fixture(changelog.read_text() if changelog.exists() else "", tags) == set()


def test_a_release_without_a_fixture_is_found() -> None:
    """Decision 101: by the heading that towncrier writes, and by the tag."""
    changelog = "## Tenantry 99.1.0 (2030-01-01)\n\nOn Kubernetes 1.36.0\n\n## Tenantry 0.1.0 (2026-01-01)\n"
    assert without_fixture(changelog, ["v99.0.0rc1", "v0.1.0", "vendored"]) == {"99.1.0", "99.0.0rc1"}


@pytest.mark.parametrize("release", RELEASES, ids=lambda each: each.name)
def test_every_schema_keeps_what_a_release_stored(release: Path) -> None:
    """X08: no conversion is needed: the version is served and stored, and each field keeps its meaning."""
    now = {kind.resource.full_name: releasefixtures.schema_of(kind) for kind in KINDS}
    for name, before in schemas(release).items():
        assert (now[name]["name"], now[name]["served"], now[name]["storage"]) == (before["name"], True, True)
        assert list(losses(before["schema"], now[name]["schema"], name)) == []


@pytest.mark.parametrize("release", RELEASES, ids=lambda each: each.name)
def test_objects_of_a_release_are_read_whole(release: Path) -> None:
    """X08: with every default that its API server stored; an unknown field would be a problem."""
    stored: list[Json] = list(yaml.safe_load_all((release / "objects.yaml").read_text()))
    assert len(stored) > 20
    for each in stored:
        kind = BY_KIND[each["kind"]]
        value, problems = read(each, kind)
        assert problems == []
        assert value is not None
        assert msgspec.json.decode(msgspec.json.encode(value), type=kind) == value


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ({"type": "object", "properties": {}}, ".a: is not known any more"),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, ".a: is integer, was string"),
        ({"type": "object", "properties": {"a": {"type": "string", "enum": ["x"]}}}, ".a: has no longer ['y']"),
        ({"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}}}, ".a: maxLength is 3, was 5"),
        (
            {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "required": ["b"]},
            ".b: is required, and was not",
        ),
    ],
)
def test_a_schema_that_loses_something_is_found(after: Json, said: str) -> None:
    a = {"type": "string", "enum": ["x", "y"], "maxLength": 5}
    assert said in list(losses({"type": "object", "properties": {"a": a}}, after))


@pytest.mark.parametrize(
    ("installed", "own"),
    [("", "0.1.0"), ("0.1.0", "0.1.0"), ("0.1.0", "0.2.0"), ("0.2.0rc1", "0.2.0"), ("0.9.0", "0.10.0")],
)
def test_an_upgrade_goes_forward(installed: str, own: str) -> None:
    require_not_newer(installed, own)


@pytest.mark.parametrize(
    ("installed", "own", "said"),
    [
        (
            "0.2.0",
            "0.1.0",
            "the cluster has Tenantry 0.2.0, which is newer than this command \\(0.1.0\\): use `tenantry` 0.2.0",
        ),
        ("0.1.0", "0.1.0rc2", "newer"),
        ("0.1.0b1", "0.1.0a9", "newer"),
        ("\x1b[2J", "0.1.0", "which is no release"),
    ],
)
def test_a_newer_installation_is_refused(installed: str, own: str, said: str) -> None:
    """X08: with one sentence, before the first write."""
    with pytest.raises(ConfigError, match=said):
        require_not_newer(installed, own)


async def test_a_newer_installation_stays_as_it_is() -> None:
    """X08: the command ends before its first write."""
    world = World()
    labels = {marks.INSTALLED_VERSION: "99.0.0"}
    world.put_in(CRDS, {"metadata": {"name": Tenant.resource.full_name, "labels": labels}, "spec": {}})
    before = world.revision
    with pytest.raises(ConfigError, match=r"the cluster has Tenantry 99\.0\.0"):
        await found(WorldClient(world, lambda: "none"), manifests.foundation(manifests.LOCAL_USER))
    assert world.revision == before
