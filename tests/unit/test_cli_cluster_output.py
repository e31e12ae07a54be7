"""Every command of `tenantry cluster` documents its exit codes, and prints data for programs (H04)."""

from __future__ import annotations

import click
import pytest

from tenantry.cli.cluster.group import cluster

COMMANDS = sorted(cluster.commands)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_documents_its_exit_codes(name: str) -> None:
    """H04: in its help, which is also the reference page."""
    assert "Exit code: 0 " in " ".join((cluster.commands[name].help or "").split())


@pytest.mark.parametrize("name", [each for each in COMMANDS if each != "wait"])
def test_every_command_prints_json(name: str) -> None:
    """H04: `wait` prints nothing on stdout."""
    (option,) = (each for each in cluster.commands[name].params if "--output" in each.opts)
    assert isinstance(option.type, click.Choice)
    assert {"json", "yaml"} <= set(option.type.choices)
