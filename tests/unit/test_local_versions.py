"""The versions of Kubernetes of local clusters: which there are, which way they go, and what runs on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenantry.api.errors import InputError
from tenantry.local import build, components, controlplaneversions, sources
from tenantry.local.controlplaneversions import VERSIONS, chosen
from tenantry.local.paths import ClusterPaths
from tenantry.local.spec import ClusterSpec, Ports


def test_there_are_three_versions_and_the_newest_is_the_default() -> None:
    """Issue 20, point 1."""
    assert [(each.name, each.is_default) for each in VERSIONS.known()] == [
        ("1.34", False),
        ("1.35", False),
        ("1.36", True),
    ]
    assert VERSIONS.product("") is build.CONTROL_PLANE
    made = {build.fingerprint(sources.root(), each) for each in VERSIONS.products()}
    assert len(made) == 3
    with pytest.raises(InputError, match=r"'1\.33' is not a version of Kubernetes.*choose 1\.34, 1\.35, 1\.36"):
        VERSIONS.find("1.33")


@pytest.mark.parametrize(
    ("wanted", "before", "expected"),
    [("", None, "1.36"), ("1.34", None, "1.34"), ("", "1.34", "1.34"), ("1.35", "1.34", "1.35"), ("", "", "1.36")],
)
def test_a_cluster_keeps_its_version_or_goes_to_the_next(wanted: str, before: str | None, expected: str) -> None:
    """Issue 20, point 1: without the option, nothing changes."""
    assert chosen(wanted, before, "c") == expected


@pytest.mark.parametrize(("wanted", "before"), [("1.34", ""), ("1.34", "1.35"), ("1.36", "1.34")])
def test_a_cluster_goes_neither_back_nor_over_a_version(wanted: str, before: str) -> None:
    """Issue 20, point 1: an older API server does not read what a newer one has written."""
    with pytest.raises(InputError, match=r"goes to the next minor version only.*tenantry down --cluster c --purge"):
        controlplaneversions.chosen(wanted, before, "c")


@pytest.mark.parametrize(("version", "has_webhook"), [("1.34", True), ("1.35", True), ("1.36", False), ("", False)])
def test_the_operator_serves_a_webhook_where_policies_cannot_change_objects(
    tmp_path: Path, version: str, *, has_webhook: bool
) -> None:
    """Issue 20, point 1: also in the cluster of a version before this one, whose spec names none."""
    ports = Ports(**dict.fromkeys(Ports.__struct_fields__, 20000))
    spec = ClusterSpec(name="c", ports=ports, binaries="/bin", kubernetes=version)
    command = components.operator(spec, ClusterPaths(tmp_path), "python").command
    assert ("--webhook-address=127.0.0.1:20000" in command) is has_webhook
