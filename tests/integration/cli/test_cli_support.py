"""A support bundle of a real cluster: it has what helps, and no Secret."""

from __future__ import annotations

import base64
import json
import tarfile
from pathlib import Path

from cli_command import Cli


def test_the_bundle_has_conditions_logs_and_metrics_and_no_secret(cli: Cli, tmp_path: Path) -> None:
    cli.run("tenant", "create", "bundled", "--owner", "ada", "--quota", "pods=3", "--wait")
    hidden = "secret-of-the-tenant"
    secret = ("create", "secret", "generic", "hidden", f"--from-literal=key={hidden}")
    assert cli.made("-n", "bundled", *secret).returncode == 0
    encoded = base64.b64encode(hidden.encode()).decode()
    file = tmp_path / "bundle.tar.gz"
    done = cli.run("support-bundle", "--file", str(file))
    assert "look through them" in done.stderr
    assert file.stat().st_mode & 0o077 == 0
    with tarfile.open(file) as archive:
        found = {each.name.removeprefix("tenantry-support/"): archive.extractfile(each) for each in archive}
        texts = {name: stream.read().decode() for name, stream in found.items() if stream is not None}
    (tenant,) = [each for each in json.loads(texts["objects/tenants.json"]) if each["metadata"]["name"] == "bundled"]
    assert {each["type"]: each["status"] for each in tenant["status"]["conditions"]}["Ready"] == "True"
    assert "managedFields" not in tenant["metadata"]
    assert json.loads(texts["version.json"])["kubernetes"].startswith("v1.")
    assert "the installed objects are those of this version" in texts["installation.txt"]
    assert 'tenantry_tenant_quota{resource="pods",tenant="bundled",type="hard"} 3.0' in texts["metrics.txt"]
    assert '"level"' in texts["logs/operator.log"]
    assert "problems.txt" not in texts
    assert not any(hidden in text or encoded in text for text in texts.values())
    # An existing file may be the evidence of another day.
    again = cli.run("support-bundle", "--file", str(file), code=2)
    assert "exists" in again.stderr
    cli.run("delete", "tenant", "bundled", "--yes", "--no-wait")
