"""The release: versions and the bill of materials."""

from __future__ import annotations

import re
import tomllib

import pytest

from tenantry import __version__
from tenantry.local import build
from testkit import tools

release, sbom = tools.load("release"), tools.load("sbom")


def test_a_release_follows_its_candidate() -> None:
    release.require_later("0.2.0", "0.2.0rc1")


@pytest.mark.parametrize("version", ["0.1.0", "0.0.9", "0.1.0rc1"])
def test_a_release_is_later_than_the_current_version(version: str) -> None:
    with pytest.raises(release.ReleaseError, match="later than the current one"):
        release.require_later(version, "0.1.0")


@pytest.mark.parametrize("version", ["v0.2.0", "0.2", "0.2.0-rc1", "latest", ""])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(release.ReleaseError, match="PEP 440"):
        release.require_later(version, "0.1.0")


def test_the_extra_requires_the_programs_of_this_version() -> None:
    """Otherwise, pip would install programs whose sources differ, and `tenantry up` would build others."""
    project = tomllib.loads((tools.ROOT / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["local"] == [f"{build.CONTROL_PLANE.package}=={__version__}"]


def test_the_changelog_takes_every_fragment() -> None:
    """Towncrier ignores a fragment whose type it does not know, and the changelog of a release lacks the change."""
    settings = tomllib.loads((tools.ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
    types = {each["directory"] for each in settings["type"]}
    fragments = [each.name for each in (tools.ROOT / settings["directory"]).glob("*.md")]
    assert [name for name in fragments if name.split(".")[-2] not in types] == []


def test_a_release_has_every_file_of_deploy_that_a_page_names() -> None:
    """A person with the files of a release has no checkout. Folders stand for their files."""
    pages = "".join(page.read_text() for page in (tools.ROOT / "docs").rglob("*.md") if "decisions" not in page.parts)
    named = {each.rstrip("/.") for each in re.findall(r"deploy/[a-z/.-]*[a-z]", pages)}
    # A release has these as `tenantry-VERSION-install.yaml` and `tenantry-VERSION.tgz`.
    named -= {"deploy/install.yaml", "deploy/chart"}
    assert named
    packed = release.applied(tools.ROOT)
    assert [each for each in named if not any(f"{name}/".startswith(f"{each}/") for name in packed)] == []


def test_the_bill_has_each_pinned_package_and_each_module() -> None:
    text = (
        "aiohttp==3.14.5 \\\n    --hash=sha256:"
        + "a" * 64
        + "\n    # via tenantry\nRich==14.0 ; python_version > '3'\n"
    )
    found = {each["purl"]: each for each in sbom.python_components(text)}
    assert set(found) == {"pkg:pypi/aiohttp@3.14.5", "pkg:pypi/rich@14.0"}
    assert found["pkg:pypi/aiohttp@3.14.5"]["properties"] == [{"name": "tenantry:sha256", "value": "a" * 64}]
    several = "require (\n\texample.com/two/v2 v2.0.0 // indirect\n)\n"
    mod = f"module x\n\ngo 1.26.0\n\nrequire example.com/one v1.2.3\n\n{several}"
    assert list(sbom.go_modules(mod)) == [("example.com/one", "v1.2.3"), ("example.com/two/v2", "v2.0.0")]


def test_the_bill_of_this_tree_names_what_it_is_built_of() -> None:
    bill = sbom.document("1.0.0")
    refs = [each["bom-ref"] for each in bill["components"]]
    assert len(set(refs)) == len(refs)
    assert any(each.startswith("pkg:pypi/msgspec@") for each in refs)
    kubernetes = [each for each in bill["components"] if each["name"] == "k8s.io/kubernetes"]
    assert "hosted" in {value["value"] for each in kubernetes for value in each["properties"]}
    assert sbom.document("1.0.0") == bill
    assert sbom.document("1.0.1")["serialNumber"] != bill["serialNumber"]
