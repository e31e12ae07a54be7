"""`tenantry status` on a real control plane: healthy, damaged, without an operator, and without any cluster."""

from __future__ import annotations

from pathlib import Path

from cli_command import NAME, Cli

from tenantry import __version__


def test_a_healthy_cluster_shows_leader_versions_tenants_and_components(cli: Cli) -> None:
    said = cli.run("status")
    lines = said.stdout.splitlines()
    assert lines[0].startswith(f"Healthy: Tenantry {__version__} on Kubernetes v1.")
    (operator,) = [line for line in lines if line.strip().startswith("operator:")]
    assert f"version {__version__}, leader " in operator
    assert "intact" in said.stdout
    assert f'cluster "{NAME}": Ready' in said.stdout
    found = cli.json("status", "-o", "json")
    assert (found["healthy"], found["operator"]["isLeading"], found["differences"]) == (True, True, [])
    assert found["local"]["phase"] == "Ready"


def test_a_cluster_of_a_kubeconfig_has_no_components(cli: Cli) -> None:
    """It works on any cluster: a kubeconfig says nothing of the processes on this machine."""
    said = cli.run("status", "--kubeconfig", str(cli.admin_kubeconfig), environment={"TENANTRY_NAME": ""})
    assert said.stdout.startswith("Healthy: ")
    assert "COMPONENT" not in said.stdout


def test_a_policy_that_was_turned_off_makes_it_unhealthy(cli: Cli) -> None:
    """The operator would repair it at once: without this binding it repairs nothing."""
    binding = cli.kubectl("get", "clusterrolebinding", "tenantry-repairs", "-o", "yaml")
    assert binding.returncode == 0, binding.stderr
    assert cli.kubectl("delete", "clusterrolebinding", "tenantry-repairs").returncode == 0
    try:
        said = cli.run("status", code=1)
        assert said.stdout.startswith("Not healthy: ")
        assert "ClusterRoleBinding 'tenantry-repairs' is missing" in said.stdout
        assert "next: tenantry install" in said.stdout
    finally:
        cli.run("install")
    assert cli.run("status").stdout.startswith("Healthy: ")


def test_without_a_cluster_one_sentence_says_what_to_do(cli: Cli, tmp_path: Path) -> None:
    bare = {"TENANTRY_NAME": "", "TENANTRY_HOME": str(tmp_path), "HOME": str(tmp_path), "KUBECONFIG": ""}
    said = cli.run("status", code=3, environment=bare)
    assert said.stdout == ""
    assert said.stderr.count("\n") == 1
    assert "start a local one with `tenantry up`" in said.stderr


def test_an_owner_is_told_which_command_is_theirs(cli: Cli) -> None:
    cli.run("tenant", "create", "statused", "--owner", "ada", "--wait")
    try:
        file = cli.folder / "status-ada.kubeconfig"
        file.write_text(cli.run("kubeconfig", "--tenant", "statused").stdout)
        said = cli.run("status", "--kubeconfig", str(file), code=5, environment={"TENANTRY_NAME": ""})
        assert "`tenantry my` shows what is yours" in said.stderr
    finally:
        cli.run("delete", "tenant", "statused", "--yes", "--no-wait")
