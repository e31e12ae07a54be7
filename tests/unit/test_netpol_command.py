"""What `tenantry netpol-agent` refuses before it does anything."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tenantry.api.errors import InputError
from tenantry.cli.main import tenantry
from tenantry.cli.processes.netpol_agent import netpol_agent


@pytest.mark.parametrize("name", ["", "*", 'cni0" accept', "a-name-that-is-too-long", "veth*x", "cni0\n"])
def test_what_is_no_interface_never_reaches_nft(name: str) -> None:
    """H06: names are put into nft's language."""
    done = CliRunner().invoke(netpol_agent, ["--node", "n0", "--pod-interface", name])

    assert isinstance(done.exception, InputError)
    assert "--pod-interface" in str(done.exception)


def test_the_command_is_found_and_not_listed() -> None:
    """H06: nodes call it; people need not know it."""
    found = CliRunner().invoke(tenantry, ["netpol-agent", "--help"])
    listed = CliRunner().invoke(tenantry, ["--help"])

    assert "--pod-interface" in found.output
    assert "netpol-agent" not in listed.output
