"""H04: ranges, owners inside, OIDC, audit level and features of a cluster, from its spec to its process."""

from __future__ import annotations

import datetime as dt
import ipaddress
import socket
from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.clustertemplate import ClusterTemplate, ClusterTemplateSpec, TemplateLimits
from tenantry.api.contributednode import ContributedNode
from tenantry.api.dedicatedcluster import DedicatedClusterSpec
from tenantry.api.errors import LocalError, TerminalError
from tenantry.api.model import ObjectMeta
from tenantry.api.owner import InnerOwner, InnerOwnerKind
from tenantry.api.planeegress import PlaneEgress
from tenantry.api.planeendpoint import PlaneEndpoint
from tenantry.api.planenetwork import PlaneNetwork
from tenantry.api.planeserver import AuditLevel, ClusterApiServer, FeatureGate, PlaneOidc
from tenantry.api.planesnapshots import PlaneOutcome, PlaneSnapshot
from tenantry.api.virtualcontrolplane import (
    PlanePhase,
    VirtualControlPlane,
    VirtualControlPlaneSpec,
    VirtualControlPlaneStatus,
)
from tenantry.controllers.dedicatedcluster import contributed, reported, status
from tenantry.controllers.virtualcontrolplane import desired, egress, firststart, servicenetwork
from tenantry.hosting import plane as hosting
from tenantry.hosting.outside import networks
from tenantry.hosting.plane import HostedPlane
from tenantry.local import ports
from tenantry.local.real import network
from testkit.clusterworld import NOW, ClusterWorld

OIDC = PlaneOidc(issuer="https://login.example.com/realm", client_id="kubernetes")
ALICE = InnerOwner(kind=InnerOwnerKind.USER, name="oidc:alice")
RANGES = PlaneNetwork(pod_range="10.64.0.0/16", service_range="10.66.0.0/16", dns_domain="prod.example")
SMALL = ObjectMeta(name="small", generation=1)
OFFERED = ClusterTemplateSpec(versions=("1.35", "1.36"))
SPEC = DedicatedClusterSpec(
    endpoint=PlaneEndpoint(host="prod.acme.example", port=31987),
    network=RANGES,
    owners=(ALICE,),
    api_server=ClusterApiServer(
        oidc=OIDC, audit_level=AuditLevel.METADATA, feature_gates=(FeatureGate.HPA_SCALE_TO_ZERO,)
    ),
)


def limited(**limits: object) -> ClusterTemplate:
    """Return a template with these limits."""
    spec = ClusterTemplateSpec(limits=replace(TemplateLimits(), **limits))
    return ClusterTemplate(metadata=ObjectMeta(name="small", generation=1), spec=spec)


def flags_of(hosted: HostedPlane, part: str) -> list[str]:
    """Return the flags of a part of a process."""
    found: list[str] = msgspec.json.decode(hosting.settings(hosted, 20000, "/openapi"))[part]
    return found


def of(spec: DedicatedClusterSpec, template: ClusterTemplate | None = None) -> ClusterWorld:
    """Return a cluster after the first writes of the operator."""
    there = ClusterWorld(spec if template is None else replace(spec, template=template.metadata.name))
    there.template = template
    there.settle()
    return there


def plane(there: ClusterWorld) -> VirtualControlPlane:
    """Return its control plane, which is there."""
    assert there.plane is not None
    return there.plane


def test_every_field_reaches_the_process() -> None:
    """H04: by the spec of the control plane."""
    found = plane(of(SPEC))
    hosted = desired.plane_of(found, "10.66.0.7", service_range=found.spec.network.service_range)
    flags = flags_of(hosted, "apiServer")
    assert "--service-cluster-ip-range=10.66.0.0/16" in flags
    (features,) = [each for each in flags if each.startswith("--feature-gates=")]
    assert features.endswith(",HPAScaleToZero=true")
    assert hosted.options.audit_level == "Metadata"
    assert [each["issuer"] for each in hosted.options.authenticators]
    assert "--cluster-cidr=10.64.0.0/16" in flags_of(hosted, "controllers")
    names = hosting.leaves(hosted)["server"].names
    assert {"kubernetes.default.svc.prod.example", "10.66.0.1", "prod.acme.example"} <= set(names)
    subjects = desired.owners_binding(hosted, is_open=True)["subjects"]
    assert [(each["kind"], each["name"]) for each in subjects] == [
        ("User", hosted.owner),
        ("User", "oidc:alice"),
    ]
    assert not desired.owners_binding(hosted, is_open=False)["subjects"]


def test_without_the_fields_nothing_changes() -> None:
    """H04: each machine has a range already, and the domain is that of Kubernetes."""
    hosted = desired.plane_of(plane(of(DedicatedClusterSpec())), "10.96.0.7")
    assert not [each for each in flags_of(hosted, "controllers") if each.startswith("--cluster-cidr")]
    assert hosting.leaves(hosted)["server"].names.count("kubernetes.default.svc.cluster.local") == 1


def test_what_users_change_in_the_control_plane_is_brought_back() -> None:
    """H04: an issuer that is removed from the spec of the cluster is accepted no more."""
    there = of(SPEC)
    there.change(replace(SPEC, api_server=ClusterApiServer(), owners=()))
    there.settle()
    spec = plane(there).spec
    assert spec.authentication.oidc is UNSET
    assert (spec.audit.level, spec.feature_gates, spec.owners) == (AuditLevel.NONE, (), ())
    assert spec.network == RANGES


def test_a_template_opens_the_gate_for_its_issuers_only() -> None:
    """H04: an owner makes the provider's machine dial nothing that an administrator has not named."""
    url = OIDC.issuer
    there = of(SPEC, limited(oidc_issuers=(url,)))
    assert plane(there).spec.egress == PlaneEgress(issuers=(url,))
    rule = egress.rule(plane(there).spec.egress, ())
    assert not rule.refusal_of_host("login.example.com")
    assert rule.refusal_of_host("metadata.example.com")
    # Without a list, an administrator allows the host.
    assert plane(of(SPEC, limited())).spec.egress == PlaneEgress()
    # An address is none of a name, and a private one is not reached by it.
    numbered = egress.rule(PlaneEgress(issuers=("https://10.0.0.5/",)), ())
    assert numbered.refusal_of_host("10.0.0.5")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (limited(networks=("10.200.0.0/16",)), "spec.network.podRange must be within 10.200.0.0/16, not 10.64.0.0/16"),
        (limited(networks=()), "spec.network.podRange must be left out, not 10.64.0.0/16"),
        (
            limited(networks=("10.64.0.0/16",)),
            "spec.network.serviceRange must be within 10.64.0.0/16, not 10.66.0.0/16",
        ),
        (limited(oidc_issuers=("https://other.example.com",)), "spec.apiServer.oidc.issuer must be one of https://oth"),
        (limited(oidc_issuers=()), "spec.apiServer.oidc.issuer must be left out"),
        (limited(feature_gates=()), "spec.apiServer.featureGates must be left out, not HPAScaleToZero"),
    ],
)
def test_a_template_refuses_what_it_does_not_list(template: ClusterTemplate, message: str) -> None:
    """H04: before anything is created."""
    there = of(SPEC, template)
    assert there.plane is None
    state, reason, told = there.condition(reasons.READY)
    assert (state, reason) == ("False", reasons.INVALID_SPEC)
    assert message in told


def test_a_template_that_is_deleted_leaves_the_issuer() -> None:
    """H04: clients that log in by it go on; another issuer is not reached."""
    there = of(SPEC, limited(oidc_issuers=(OIDC.issuer,)))
    there.template = None
    there.settle()
    assert plane(there).spec.egress.issuers == (OIDC.issuer,)
    other = replace(SPEC.api_server, oidc=replace(OIDC, issuer="https://other.example.com"))
    there.change(replace(there.found.spec, api_server=other))
    there.settle()
    assert plane(there).spec.egress.issuers == ()


def test_a_later_limit_takes_nothing_and_closes_the_gate() -> None:
    """H04: the cluster keeps its settings; tokens of the issuer end with its keys."""
    there = of(SPEC, limited(oidc_issuers=(OIDC.issuer,)))
    there.template = limited(oidc_issuers=(), networks=(), feature_gates=())
    there.settle()
    assert there.condition(reasons.READY)[1] != reasons.INVALID_SPEC
    spec = plane(there).spec
    assert spec.authentication.oidc == OIDC
    assert spec.egress.issuers == ()


@pytest.mark.parametrize("field", ["pod_range", "service_range"])
def test_a_range_of_the_host_is_refused_before_the_first_start_with_both_ranges(field: str) -> None:
    """H04: a cluster that runs is not ended because the host has grown."""
    wanted = replace(PlaneNetwork(), **{field: "10.96.0.0/14"})
    found = replace(plane(of(SPEC)), spec=replace(plane(of(SPEC)).spec, network=wanted))
    given = servicenetwork.of(wanted, (), networks(("10.97.0.0/16", "192.0.2.7")))
    with pytest.raises(TerminalError, match=r"10\.96\.0\.0/14 must not overlap 10\.97\.0\.0/16.*choose another range"):
        firststart.check(found, given, ())
    runs = replace(found, status=replace(found.status, endpoint="https://127.0.0.1:20000"))
    firststart.check(runs, given, ())
    assert servicenetwork.missing(given) is not None
    free = servicenetwork.of(wanted, (), networks(("10.100.0.0/16",)))
    assert free.overlap is None


def test_real_nodes_of_this_machine_have_one_of_its_ranges() -> None:
    """H04: another range is refused with those that there are, and so is one that is routed already."""
    assert network.choose(None, [], "10.120.0.0/17") == 120
    with pytest.raises(LocalError, match=r"must be 10\.112\.0\.0/17, .* to 10\.127\.0\.0/17 .*not 10\.64\.0\.0/16"):
        network.choose(None, [], "10.64.0.0/16")
    with pytest.raises(LocalError, match=r"10\.120\.0\.0/17 overlaps 10\.120\.128\.0/24"):
        network.choose(None, [ipaddress.IPv4Network("10.120.128.0/24")], "10.120.0.0/17")


def test_the_status_has_what_is_known_of_the_control_plane() -> None:
    """H04: whether it sleeps, its last snapshot, what it is charged, and a later version that its template offers."""
    there = of(DedicatedClusterSpec(version="1.35"), ClusterTemplate(metadata=SMALL, spec=OFFERED))
    known = VirtualControlPlaneStatus(
        version="v1.35.4",
        phase=PlanePhase.ASLEEP,
        charged={"requests.memory": "96Mi"},
        snapshots=(PlaneSnapshot(name="a.snapshot", time=NOW),),
        last_snapshot=PlaneOutcome(snapshot="a.snapshot", time=NOW),
    )
    there.plane = replace(plane(there), status=known)
    assert there.condition(reasons.SLEEPING)[:2] == ("True", reasons.ASLEEP)
    assert there.condition(reasons.BACKED_UP)[:2] == ("True", reasons.ESTABLISHED)
    state, reason, told = there.condition(reasons.UPGRADE_AVAILABLE)
    assert (state, reason) == ("True", reasons.VERSION_OFFERED)
    assert "`tenantry cluster upgrade prod -n acme --plan`" in told
    found = status.compute(there.inputs(), None, NOW)
    assert (found.charged, found.last_backup) == ({"requests.memory": "96Mi"}, NOW)
    there.plane = replace(plane(there), status=replace(known, last_snapshot=PlaneOutcome(message="disk full")))
    assert there.condition(reasons.BACKED_UP)[:2] == ("False", reasons.SNAPSHOT_FAILED)


def test_a_cluster_ends_with_its_lease_and_is_warned_of_it() -> None:
    """H04, X05: a text that is no time ends nothing."""
    there = of(DedicatedClusterSpec(expires_at="2027-01-01T12:00:00Z"))
    assert there.condition(reasons.EXPIRING)[:2] == ("True", reasons.EXPIRES_SOON)
    assert not reported.term(there.found, there.now).is_expired
    assert reported.term(there.found, there.now + dt.timedelta(hours=12)).is_expired
    there = of(DedicatedClusterSpec(expires_at="tomorrow"))
    assert there.condition(reasons.READY)[1] == reasons.INVALID_SPEC
    assert not reported.term(there.found, there.now).is_expired


def test_a_host_that_another_control_plane_has_is_refused() -> None:
    """H04: the older one has it; names of other namespaces are not told."""
    spec = VirtualControlPlaneSpec(endpoint=PlaneEndpoint(host="prod.example"))
    metas = (
        ObjectMeta(name=name, namespace=place, uid=name, creation_timestamp=made)
        for name, place, made in (("a", "acme", "2026-01-01T00:00:00Z"), ("b", "acme", NOW), ("c", "other", NOW))
    )
    first, second, third = (VirtualControlPlane(metadata=each, spec=spec) for each in metas)
    free = servicenetwork.of(PlaneNetwork(), (), ())
    firststart.check(first, free, (first, second, third))
    with pytest.raises(TerminalError, match=r"prod\.example is in use by VirtualControlPlane 'acme/a': choose another"):
        firststart.check(second, free, (first, second))
    with pytest.raises(TerminalError, match="in use by a control plane in another namespace"):
        firststart.check(third, free, (first, third))
    runs = replace(third, status=VirtualControlPlaneStatus(endpoint="https://prod.example"))
    firststart.check(runs, free, (first, runs))
    with pytest.raises(TerminalError, match="in another namespace"):
        firststart.check(first, free, (runs, first))


def test_a_port_in_use_is_refused_with_what_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H04: it is reserved as other ports are."""
    monkeypatch.setattr(ports, "book_folder", lambda: tmp_path)
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for each in (mine, theirs):
        each.mkdir()
    port = next(each for each in range(31000, 32000) if ports.is_free(each))
    first, second = ports.reserve_at(theirs, port, 1, str)
    assert first == port != second
    with pytest.raises(LocalError, match=f"spec.endpoint.port {port} is in use by the control plane 'theirs'"):
        ports.reserve_at(mine, port, 1, lambda folder: f"the control plane {folder.name!r}")
    foreign = f"spec.endpoint.port {port} is in use by another control plane or program of this machine"
    with pytest.raises(LocalError, match=foreign):
        ports.reserve_at(mine, port, 1, lambda _: "")
    with socket.create_server(("127.0.0.1", 0)) as server:
        used = server.getsockname()[1]
        monkeypatch.setattr(ports, "_FIRST", used)
        monkeypatch.setattr(ports, "_END", used + 1)
        monkeypatch.setattr(ports, "_first_ephemeral", lambda: used + 1)
        with pytest.raises(LocalError, match=foreign.replace(str(port), str(used))):
            ports.reserve_at(mine, used, 1, str)
    monkeypatch.undo()
    monkeypatch.setattr(ports, "book_folder", lambda: tmp_path)
    with pytest.raises(LocalError, match="must be from 20000"):
        ports.reserve_at(mine, 443, 1, str)


@pytest.mark.parametrize(
    ("pods", "told"),
    [
        ("10.64.9.0/24", ""),
        ("10.80.0.0/24", "must be within spec.network.podRange, 10.64.0.0/16"),
        ("10.66.1.0/24", "must not overlap spec.network.serviceRange, 10.66.0.0/16"),
    ],
)
def test_a_machine_from_outside_has_a_range_of_its_cluster(pods: str, told: str) -> None:
    """H04: its own network gives the addresses of its pods, and Services must not have them."""
    entry = ContributedNode(name="outside-abc123", addresses=("192.168.7.5",), pod_range=pods)
    network = RANGES if told.find("service") < 0 else replace(RANGES, pod_range="")
    there = of(DedicatedClusterSpec(network=network, contributed=(entry,)))
    found = contributed.problem(there.inputs(), entry)
    assert told in found if told else not found
