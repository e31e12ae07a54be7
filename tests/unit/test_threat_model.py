"""THREAT_MODEL.md names only policies that are installed and tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

from tenantry.install import manifests

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "THREAT_MODEL.md").read_text()
# The rows of tables: an id, letters of STRIDE, a threat, what keeps it, a test.
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("| ")]
THREATS = [row for row in ROWS if re.fullmatch(r"[A-Z]+-\d+", row[0])]


def test_every_policy_that_keeps_a_threat_is_installed() -> None:
    """X02: what is said to hold when the operator is down is in the API server."""
    kinds = {"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"}
    objects = manifests.foundation(manifests.LOCAL_USER)
    installed = {value["metadata"]["name"] for value in objects if value["kind"] in kinds}
    named = {name for row in THREATS for name in re.findall(r"`(tenantry-[a-z-]+)`", row[3])}
    assert named
    assert named - installed == set()


def test_every_test_that_is_named_is_there() -> None:
    """X02: each threat is tried."""
    missing: list[str] = []
    for row in THREATS:
        found = re.findall(r"`(?:(tests/[a-z0-9_/]+/))?(test_[a-z0-9_]+[.]py)(?:::(test_[a-z0-9_]+))?`", row[4])
        if not found:
            missing.append(f"{row[0]} names no test")
        for folder, file, name in found:
            path = ROOT / (folder or "tests/integration/") / file
            if not path.exists() or (name and f"def {name}(" not in path.read_text()):
                missing.append(f"{row[0]}: {file}::{name}")
    assert missing == []


def test_no_id_is_given_twice() -> None:
    """X02: tests and other documents name threats by their ids."""
    ids = [row[0] for row in THREATS]
    assert len(ids) == len(set(ids))
