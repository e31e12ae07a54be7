"""The local repository of clusterctl (H04): tests/integration/test_cluster_api.py has clusterctl itself read it."""

from __future__ import annotations

from pathlib import Path

import yaml
from click.testing import CliRunner

from tenantry.api.clusterapi import CLUSTER_API_KINDS
from tenantry.cli.install import install
from tenantry.install import clusterapi


def test_the_files_have_all_kinds_once_and_their_contract(tmp_path: Path) -> None:
    """H04: each provider has its kinds and rights; clusterctl finds both by absolute paths."""
    folder = tmp_path / "repository"
    said = CliRunner().invoke(install, ["--cluster-api-provider", "--clusterctl-repository", str(folder)])
    assert said.exit_code == 0
    assert f"--config {folder}/clusterctl.yaml" in said.stderr
    (config,) = yaml.safe_load_all((folder / "clusterctl.yaml").read_text())
    assert [(each["name"], each["type"]) for each in config["providers"]] == [
        ("tenantry", "InfrastructureProvider"),
        ("tenantry", "ControlPlaneProvider"),
    ]
    kinds: list[str] = []
    for provider in config["providers"]:
        file = Path(provider["url"])
        objects = list(yaml.safe_load_all(file.read_text()))
        kinds += [each["spec"]["names"]["kind"] for each in objects if each["kind"] == "CustomResourceDefinition"]
        assert [each["kind"] for each in objects].count("Namespace") == 1, "clusterctl refuses several"
        (binding,) = (each for each in objects if each["kind"] == "ClusterRoleBinding")
        assert binding["subjects"][0]["name"] == "system:serviceaccount:tenantry-system:tenantry-operator"
        (metadata,) = yaml.safe_load_all((file.parent / "metadata.yaml").read_text())
        assert metadata["releaseSeries"][0]["contract"] == "v1beta2"
        assert file.parent.parent.name in {"infrastructure-tenantry", "control-plane-tenantry"}
    assert sorted(kinds) == sorted(each.resource.kind for each in CLUSTER_API_KINDS)
    assert {clusterapi.part_of(each) for each in CLUSTER_API_KINDS} == {"infrastructure", "control-plane"}


def test_the_repository_is_of_the_provider(tmp_path: Path) -> None:
    """H04: without its option, the words would be about nothing."""
    said = CliRunner().invoke(install, ["--clusterctl-repository", str(tmp_path)])
    assert "needs --cluster-api-provider" in str(said.exception)
    (tmp_path / "clusterctl.yaml").mkdir()
    said = CliRunner().invoke(install, ["--cluster-api-provider", "--clusterctl-repository", str(tmp_path)])
    assert "cannot be written" in str(said.exception)
