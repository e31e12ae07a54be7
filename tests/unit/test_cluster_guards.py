"""H04: guards of a ClusterTemplate follow it, reach the control plane, and are reported if they are without effect."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.clusterguards import ClusterGuard
from tenantry.api.clustertemplate import ClusterTemplate, ClusterTemplateSpec
from tenantry.api.dedicatedcluster import DedicatedClusterSpec
from tenantry.api.model import ObjectMeta
from tenantry.api.planesnapshots import PlaneUpgrade
from tenantry.api.virtualcontrolplane import (
    PlaneNodes,
    VirtualControlPlane,
    VirtualControlPlaneSpec,
    VirtualControlPlaneStatus,
)
from tenantry.audit.check import NotApplicable, Observation
from tenantry.audit.checks.own import CHECKS
from tenantry.audit.context import AuditContext
from tenantry.controllers.virtualcontrolplane import desired, guarding, status, upgrade
from tenantry.engine.conditions import find
from tenantry.hostedpods import objects
from tenantry.hosting import guards
from tenantry.hosting import plane as hosting
from tenantry.hosting.versions import HostedVersion
from tenantry.local import hostedguards
from testkit.clusterworld import ClusterWorld

URLS, TOKENS = (ClusterGuard.OUTGOING_URLS,), (ClusterGuard.BOOTSTRAP_TOKENS,)


def template(given: tuple[ClusterGuard, ...]) -> ClusterTemplate:
    """Return a template with guards."""
    return ClusterTemplate(metadata=ObjectMeta(name="small", generation=1), spec=ClusterTemplateSpec(guards=given))


def guarded(there: ClusterWorld) -> tuple[ClusterGuard, ...]:
    """Return the guards of the control plane, once the cluster is at rest."""
    there.settle()
    assert there.plane is not None
    return there.plane.spec.guards


def test_guards_follow_the_template_and_stay_when_it_is_deleted() -> None:
    """H04: they are what administrators refuse, not a default that a cluster takes once."""
    there = ClusterWorld(DedicatedClusterSpec(template="small", nodes=1))
    there.template = template(URLS)
    assert guarded(there) == URLS
    there.template = template(TOKENS)
    assert guarded(there) == TOKENS
    there.template = None
    assert guarded(there) == TOKENS


def test_guards_of_the_control_plane_are_brought_back() -> None:
    """H04: only the template decides."""
    there = ClusterWorld(DedicatedClusterSpec(template="small", nodes=1))
    there.template = template(URLS)
    guarded(there)
    assert there.plane is not None
    there.plane = replace(there.plane, spec=replace(there.plane.spec, guards=()))
    assert guarded(there) == URLS


def plane(
    given: tuple[ClusterGuard, ...] = URLS, version: str = "1.36.3", nodes: PlaneNodes = PlaneNodes.OWN
) -> VirtualControlPlane:
    """Return a control plane that runs."""
    return VirtualControlPlane(
        metadata=ObjectMeta(name="prod", namespace="acme", uid="u"),
        spec=VirtualControlPlaneSpec(guards=given, nodes=nodes),
        status=VirtualControlPlaneStatus(version=version),
    )


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (plane(), (True, reasons.ESTABLISHED)),
        (plane(version="1.35.4"), (False, reasons.GUARDS_UNSUPPORTED)),
        (plane(nodes=PlaneNodes.USED), (False, reasons.GUARDS_UNSUPPORTED)),
        (plane(given=()), None),
        (plane(version=""), None),
    ],
)
def test_the_condition_reports_whether_guards_are_in_force(
    found: VirtualControlPlane, told: tuple[bool, str] | None
) -> None:
    """H04: a person who relies on them has to know."""
    conditions = guarding.condition(found, URLS)
    assert [(each.holds, each.reason) for each in conditions] == ([] if told is None else [told])
    assert all("OutgoingUrls" in each.message for each in conditions)


@pytest.mark.parametrize(("running", "told"), [(None, "Unknown"), ((), "False"), (URLS, "True")])
def test_guards_are_in_force_only_when_the_process_has_them(
    running: tuple[ClusterGuard, ...] | None, told: str
) -> None:
    """H04: a control plane that starts, or that is about to get its first guard, has none."""
    problem = None if running else status.STARTING
    found = status.compute(plane(), problem, endpoint="", now="2027-01-01T00:00:00Z", guards=running)
    condition = find(found.conditions, reasons.GUARDS_ENFORCED)
    assert condition is not None
    assert condition.status.value == told
    assert condition.reason == (reasons.ESTABLISHED if running else reasons.PROGRESSING)


def test_an_owner_who_names_another_template_keeps_the_guards() -> None:
    """H04: also while the other template changes; they are what administrators require of the cluster."""
    there = ClusterWorld(DedicatedClusterSpec(template="small", nodes=1))
    there.template = template(URLS)
    reconciled(there)
    there.template = replace(template(()), metadata=ObjectMeta(name="free", generation=1))
    there.change(replace(there.found.spec, template="free"))
    assert reconciled(there) == URLS
    there.template = replace(there.template, spec=ClusterTemplateSpec(guards=TOKENS))
    assert set(reconciled(there)) == {*URLS, *TOKENS}
    there.template = replace(there.template, spec=ClusterTemplateSpec())
    assert reconciled(there) == URLS


def reconciled(there: ClusterWorld) -> tuple[ClusterGuard, ...]:
    """Return the guards once the cluster has written what it takes of its template into its status."""
    there.settle()
    there.settle()
    assert there.plane is not None
    return there.plane.spec.guards


def test_a_process_that_soaks_has_no_guards_and_says_so() -> None:
    """H04: it behaves as 1.35, whose feature gates have no such name, and would not start with it."""
    found = plane(version="1.35.4")
    soaking = PlaneUpgrade(before="1.35.4", after="1.36.3", soaks=True)
    found = replace(found, status=replace(found.status, last_upgrade=soaking))
    (told,) = guarding.condition(found, ())
    assert (told.holds, "1.35" in told.message) == (False, True)
    wished = desired.plane_of(found, "10.96.0.2")
    assert wished.guards == URLS
    version = HostedVersion(name="1.36", kubernetes="1.36.3", emulates="1.35")
    assert upgrade.of_version(wished, version).guards == ()
    assert upgrade.of_version(wished, replace(version, emulates="")).guards == URLS


def test_the_process_is_started_with_its_guards() -> None:
    """H04, KEP-5793: the alpha feature is on for these control planes only."""
    without = desired.plane_of(plane(given=()), "10.96.0.2")
    settings = [
        msgspec.json.decode(hosting.settings(each, 6443, "")) for each in (without, replace(without, guards=URLS))
    ]
    for found, is_guarded in zip(settings, (False, True), strict=True):
        flags = found["apiServer"]
        assert any(f"{guards.GATE}=true" in each for each in flags) is is_guarded
        assert any(each.startswith("--admission-control-config-file=") for each in flags) is is_guarded
        assert found.get("guarded", False) is is_guarded


def test_the_files_of_guards_come_change_and_go(tmp_path: Path) -> None:
    """H04: the folder has its whole path in the configuration, and nothing is left without guards."""
    hostedguards.write(tmp_path, URLS)
    configuration = msgspec.json.decode((tmp_path / guards.CONFIGURATION).read_bytes())
    folder = tmp_path / guards.FOLDER
    assert configuration["plugins"][0]["configuration"]["staticManifestsDir"] == str(folder)
    before = (folder / guards.FILE).read_bytes()
    hostedguards.write(tmp_path, TOKENS)
    assert (folder / guards.FILE).read_bytes() != before
    hostedguards.write(tmp_path, ())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("unguarded", "told"),
    [(None, ""), ((), "read the conditions"), (("VirtualControlPlane 'prod': no",), "VirtualControlPlane 'prod': no")],
)
def test_the_audit_reports_guards_that_are_not_in_force(unguarded: tuple[str, ...] | None, told: str) -> None:
    """H04, X11: and does not count a tenant without guards."""
    (check,) = (each for each in CHECKS if each.id == "TNT-OWN-012")
    found = check.attempts(
        AuditContext(namespace="acme", user="alice", tenant="acme", suffix="x", image="i", unguarded=unguarded)
    )
    assert isinstance(found, NotApplicable if unguarded is None else Observation)
    assert told in str(found)
    assert not isinstance(found, Observation) or bool(found.wrong) is bool(unguarded)


def test_a_pod_has_its_guards_where_their_configuration_says() -> None:
    """H04: keys of a Secret have no slash, and the API server reads a folder."""
    made = guards.files(URLS, objects.HOME)
    files = {Path(name).name: content for name, content in made.items()}
    wanted = objects.stateful_set("u", objects.PodSettings(image="i"), None, {hosting.SETTINGS: b"{}", **files}, {})
    (process,) = (each for each in wanted["spec"]["template"]["spec"]["containers"] if each["name"] == objects.PROCESS)
    mounts = {each["mountPath"]: each.get("subPath") for each in process["volumeMounts"]}
    configuration = msgspec.json.decode(made[guards.CONFIGURATION])
    folder = configuration["plugins"][0]["configuration"]["staticManifestsDir"]
    assert mounts[f"{folder}/{guards.FILE}"] == guards.FILE
    assert mounts[f"{objects.HOME}/{guards.CONFIGURATION}"] == guards.CONFIGURATION
    keys = next(each for each in wanted["spec"]["template"]["spec"]["volumes"] if each["name"] == "pki")
    assert not {each["key"] for each in keys["secret"]["items"]} & {*files}
