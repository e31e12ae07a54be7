"""The command starts fast: what a verb's help needs does not include an HTTP client, nor anything that Go runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tenantry.cli.main import VERBS

HEAVY = ("aiohttp", "uvloop", "cryptography", "prometheus_client", "yaml")
SENDS = {"operator"}
"""It does nothing but run an engine."""


@pytest.mark.parametrize("verb", ["", *(verb for verb in VERBS if verb not in SENDS)])
def test_help_loads_nothing_heavy(verb: str) -> None:
    code = f"""
import sys
from tenantry.cli.main import tenantry
tenantry.main({[verb, "--help"] if verb else ["--help"]!r}, standalone_mode=False)
print("loaded:", *sorted(set({HEAVY!r}) & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1].split() == ["loaded:"]
