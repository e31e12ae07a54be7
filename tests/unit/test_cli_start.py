"""The command starts fast: what a verb's help needs does not include an HTTP client, nor anything that Go runs."""

from __future__ import annotations

import subprocess
import sys

import click

from tenantry.cli.main import TASKS, VERBS

HEAVY = ("aiohttp", "uvloop", "cryptography", "prometheus_client", "yaml", "rich", "rich_click")
SENDS = {"operator"}
"""It does nothing but run an engine."""


def test_help_loads_nothing_heavy() -> None:
    """One process shows the help of all verbs: the first one that loads a heavy module fails the test."""
    helps = [["--help"], *([verb, "--help"] for verb in VERBS if verb not in SENDS)]
    code = f"""
import sys
from tenantry.cli.main import tenantry
for arguments in {helps!r}:
    tenantry.main(arguments, standalone_mode=False)
    loaded = sorted(set({HEAVY!r}) & set(sys.modules))
    assert not loaded, (arguments, loaded)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage:") == len(helps)


def test_a_terminal_gets_help_in_colours_with_the_verbs_grouped_by_task() -> None:
    """Help on a terminal has the same words; a verb's examples keep their lines."""
    code = """
import sys
sys.stdout.isatty = lambda: True
from tenantry.cli.main import main
main()
"""
    environment = {"TERM": "xterm", "COLUMNS": "100", "FORCE_COLOR": "1", "PATH": ""}

    def help_of(*arguments: str) -> str:
        command = [sys.executable, "-c", code, *arguments, "--help"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment).stdout

    painted = help_of()
    lines = [line.rstrip() for line in click.unstyle(painted).splitlines()]
    assert [line.removesuffix(":") for line in lines if line.removesuffix(":") in TASKS] == list(TASKS)
    assert [line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in VERBS] == list(VERBS)
    assert painted != click.unstyle(painted)
    assert "  tenantry get tenants\n" in "\n".join(line.rstrip() for line in click.unstyle(help_of("get")).splitlines())
