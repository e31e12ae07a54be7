"""`tenantry vcp audit-log` (H02): what clients of a control plane write into its audit log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tenantry.cli import auditlog, output
from tenantry.cli.target import Target
from tenantry.hosting import serveroptions
from tenantry.local.paths import ClusterPaths, cluster_folder

AGENT = "curl\x85{}\x9b2J\x7f\u2028"


def test_an_event_stays_one_line_of_json_whatever_its_client_has_sent() -> None:
    # As Go writes it: control characters below the space are escaped, those above 126 are not.
    line = json.dumps({"userAgent": AGENT}, ensure_ascii=False)
    found = auditlog.events(f"{line}\n{line}\n")
    assert found == [line, line]
    assert json.loads(auditlog.shown(line)) == {"userAgent": AGENT}


def test_owners_read_the_log_of_a_cluster_on_their_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H02: with a kubeconfig of their own, which names no local cluster."""
    monkeypatch.setenv("TENANTRY_HOME", str(tmp_path))
    uid, where = "0b5aa6a2-4f5f-4d0c-9a57-d0f1a1f0c001", Target(kubeconfig=tmp_path / "alice.kubeconfig")
    assert not auditlog.files_of(where, uid)
    paths = ClusterPaths(cluster_folder("lab", tmp_path))
    log = paths.folder / "hosted" / uid / serveroptions.AUDIT_FOLDER / serveroptions.AUDIT_LOG
    log.parent.mkdir(parents=True)
    log.touch()
    paths.spec.touch()
    assert auditlog.files_of(where, uid) == (log,)


def test_no_control_character_reaches_the_terminal() -> None:
    assert auditlog.shown("a\x1b[31mb\x9b") == r"a\u001b[31mb\u009b"
    assert output.visible("\x85") == r"\x85"  # no JSON
