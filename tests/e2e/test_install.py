"""From wheels to a tenant on a machine without Go: what a person does after `pipx install 'tenantry[local]'`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.shell import ROOT

LIMIT_BYTES = 120_000_000


@pytest.mark.long
def test_the_first_tenant_is_ready_without_a_build(tmp_path: Path) -> None:
    """The benchmark fails if a step does, or builds programs; tests/integration/test_release_files.py is shorter."""

    def run(*command: str | Path) -> str:
        done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("tools/wheels.py", "--out", tmp_path)
    result = json.loads(run("benchmarks/install.py", "--wheels", tmp_path))
    assert 0 < result["downloaded_bytes"] <= LIMIT_BYTES
    assert set(result["seconds"]) == {"install", "up", "tenant"}
