"""H04: a rotation in phases of a control plane in Pods: the files that its process gets in each phase."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tenantry.api.planecredentials import RotationPhase
from tenantry.hostedpods import credentials
from tenantry.hosting import plane as hosting
from tenantry.hosting.plane import CredentialGenerations, HostedPlane
from tenantry.local.paths import ClusterPaths

NOW = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
PLANE = HostedPlane(uid="a-1", name="acme.web", issuer="https://a-1.example", owner="owner:1", has_nodes=True)


def test_a_pod_gets_the_files_of_its_phase(tmp_path: Path) -> None:
    """The Secret with all keys is what the next start begins with; each change of the files replaces the Pod."""
    paths, known = ClusterPaths(tmp_path), dict[str, bytes]()
    seen: list[dict[str, bytes]] = []
    for number, (count, phase) in enumerate(
        ((0, RotationPhase.NONE), (0, RotationPhase.PREPARING), (1, RotationPhase.ISSUING), (1, RotationPhase.NONE))
    ):
        wanted = CredentialGenerations(users=count, authorities=count, phase=phase)
        plane = replace(PLANE, credentials=wanted)
        known = credentials.issue(plane, paths.pki, known, NOW + number * DAY)
        # Another replica of the operator begins with the same files, and has nothing to do.
        assert credentials.issue(plane, tmp_path / f"other-{number}", known, NOW + number * DAY) == known
        seen.append(credentials.contents(plane, paths)[0])
    first, prepared, issued, last = seen
    assert first["users-ca.crt"] == prepared["users-ca.crt"]
    assert prepared["users-ca.crt"] != issued["users-ca.crt"] == last["users-ca.crt"]
    for files in (prepared, issued):
        assert first["users-ca.crt"] in files[hosting.CLIENTS]
        assert issued["users-ca.crt"] in files[hosting.CLIENTS]
    assert first["users-ca.crt"] not in last[hosting.CLIENTS]
    assert first["users-ca.crt"] in issued[hosting.FORMER_CLIENTS]
    activity = [msgspec.json.decode(each[hosting.SETTINGS])["activity"].get("formerAuthorities") for each in seen]
    assert activity == [None, None, f"pki/{hosting.FORMER_CLIENTS}", None]
    # The keys of authorities that only sign for the operator are in no Pod, not even the next ones.
    assert not [name for files in seen for name in files if name.startswith("next-") and name.endswith(".key")]
