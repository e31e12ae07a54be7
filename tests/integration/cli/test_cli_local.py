"""The verbs of local clusters: what they warn about, and what they do only after a confirmation."""

from __future__ import annotations

import time

import pytest
from cli_command import NAME, SECONDS, Cli


@pytest.mark.parametrize(
    ("variables", "warning"),
    [
        ({"TENANTRY_NAME": "", "KUBECONFIG": "/elsewhere"}, "warning: KUBECONFIG names another cluster"),
        ({"TENANTRY_NAME": "other"}, "warning: TENANTRY_NAME names another cluster"),
        ({"KUBECONFIG": "/elsewhere"}, ""),
    ],
)
def test_up_warns_that_a_variable_names_another_cluster(cli: Cli, variables: dict[str, str], warning: str) -> None:
    """The next command would change that cluster instead of the one that was just started."""
    said = cli.run("up", "--cluster", NAME, "--throwaway", environment=variables).stderr
    assert ("warning: " in said, warning in said) == (bool(warning), True)
    assert (f"set TENANTRY_NAME={NAME}, or give them --cluster {NAME}" in said) is bool(warning)


def test_a_purge_without_a_terminal_needs_yes(cli: Cli) -> None:
    said = cli.run("down", "--cluster", NAME, "--purge", code=2).stderr
    assert "stdin is not a terminal; confirm with --yes" in said
    assert "stopped" not in said
    # Its etcd may be slow for a moment.
    end = time.monotonic() + SECONDS
    while (done := cli.kubectl("get", "--raw", "/readyz")).returncode:
        assert time.monotonic() < end, done.stderr
