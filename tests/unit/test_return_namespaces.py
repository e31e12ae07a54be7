"""Other namespaces inside a control plane become Subnamespaces when its owner returns: what moves, and where (H01)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.conversion import Conversion, ConversionStep
from tenantry.api.model import Json, ObjectMeta, Resource
from tenantry.api.subnamespace import Mode, Subnamespace, SubnamespaceIsolation, SubnamespaceSpec
from tenantry.api.tenant import Tenant, TenantSpec, TenantStatus
from tenantry.api.virtualcontrolplane import PREFIX
from tenantry.controllers.conversion import elsewhere, journal, outmoves, outplan, surroundings
from tenantry.controllers.conversion.moves import Worlds
from tenantry.controllers.conversion.objects import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    JOBS,
    REPLICA_SETS,
    ROLE_BINDINGS,
    ROLES,
    STATEFUL_SETS,
    Holdings,
)
from tenantry.controllers.conversion.plan import Fate, PlannedObject
from tenantry.controllers.conversion.scope import ConversionScope
from tenantry.mirror.kinds import claims, ingresses, services
from tenantry.mirror.profile import Profile
from tenantry.mirror.things import PODS
from testkit.worlds import user

PLACE = "shop-0123456789abcdef"
PROFILE = Profile(owner_uid="u-vcp", namespace="acme", prefix=PREFIX)
TENANT = Tenant(metadata=ObjectMeta(name="acme", uid="u-t"), spec=TenantSpec(owners=(user("alice"),)))
ACME = ConversionScope(owner=TENANT)
ROOT = Worlds(host=Holdings(of={}), inside=Holdings(of={}), has_namespace=True, profile=PROFILE)
SERVICES = services.RESOURCE


def made(name: str, *, owner: str = "", **more: object) -> Json:
    meta: Json = {"name": name, "namespace": "shop", "uid": f"u-{name}", "labels": {"app": name}}
    if owner:
        kind, _, its = owner.partition("/")
        meta["ownerReferences"] = [{"kind": kind, "name": its, "uid": f"u-{its}", "controller": True}]
    return {"metadata": meta, "spec": {}, **more}


def shop(inside: dict[Resource, list[Json]], host: dict[Resource, list[Json]] | None = None) -> Worlds:
    return Worlds(
        host=Holdings(of=host or {}),
        inside=Holdings(of=inside),
        has_namespace=True,
        profile=replace(PROFILE, namespace=PLACE),
        source="shop",
        places={"acme": "acme", "shop": PLACE},
    )


def planned(found: Worlds, **children: Subnamespace) -> list[PlannedObject]:
    return list(outplan.plan(ACME, ROOT, others=[found], children=children).objects)


FINISHED: Json = {"conditions": [{"type": "Complete", "status": "True"}]}


@pytest.mark.parametrize(
    ("resource", "found", "fate", "told"),
    [
        (CONFIG_MAPS, made("c"), Fate.MOVED, ""),
        (PODS, made("p"), Fate.REFUSED, "no pod changes its namespace: scale its workload to 0, and up again"),
        (PODS, made("p", owner="Job/j"), Fate.DELETED, ""),
        (JOBS, made("j"), Fate.REFUSED, "has not ended"),
        (JOBS, made("j", status=FINISHED), Fate.DELETED, ""),
        (claims.RESOURCE, made("data"), Fate.REFUSED, "keeps its volume in the namespace of all pods"),
        (ingresses.RESOURCE, made("i"), Fate.REFUSED, "would lose its address"),
        (SERVICES, made("s", spec={"selector": {"a": "b"}}), Fate.MOVED, "gets another clusterIP"),
        (SERVICES, made("s", spec={"type": "ExternalName"}), Fate.MOVED, ""),
        (SERVICES, made("s"), Fate.REFUSED, "has no selector"),
        (
            SERVICES,
            made("s", spec={"type": "LoadBalancer", "selector": {"a": "b"}}),
            Fate.REFUSED,
            "change its type LoadBalancer to ClusterIP",
        ),
        (STATEFUL_SETS, made("s", spec={"replicas": 1}), Fate.REFUSED, "scale it to 0"),
        (STATEFUL_SETS, made("s", spec={"replicas": 0}), Fate.MOVED, ""),
        (DEPLOYMENTS, made("d"), Fate.REFUSED, "has replicas"),
        (REPLICA_SETS, made("r", spec={"replicas": 2}), Fate.REFUSED, "has replicas"),
        (REPLICA_SETS, made("r", spec={"replicas": 0}), Fate.MOVED, ""),
    ],
)
def test_only_what_does_not_run_moves(resource: Resource, found: Json, fate: Fate, told: str) -> None:
    told_of = [each for each in planned(shop({resource: [found]})) if each.kind == resource.kind]
    assert [(each.name, each.fate) for each in told_of] == [(f"shop/{found['metadata']['name']}", fate)]
    assert told in told_of[0].reason


def child(mode: Mode = Mode.WORKSPACE, *owners: str, is_virtual: bool = False, ending: str = "") -> Subnamespace:
    choice = ControlPlaneChoice.VIRTUAL if is_virtual else ControlPlaneChoice.SHARED
    return Subnamespace(
        metadata=ObjectMeta(name="shop", namespace="acme", deletion_timestamp=ending),
        spec=SubnamespaceSpec(
            mode=mode,
            owners=tuple(user(each) for each in owners or ("alice",)),
            isolation=SubnamespaceIsolation(control_plane=choice),
        ),
    )


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (child(), ""),
        (child(Mode.SUBTENANT), "which is a Subtenant"),
        (child(is_virtual=True), "which is a Subnamespace with a control plane of its own"),
        # Its owner would get what only administrators inside had.
        (child(Mode.WORKSPACE, "alice", "mallory"), "which mallory own, too"),
        (child(ending="2026-01-01T00:00:00Z"), "which is being deleted"),
    ],
)
def test_a_subnamespace_of_the_name_must_be_one_of_the_same_owners(found: Subnamespace, told: str) -> None:
    rows = [each for each in planned(shop({}), shop=found) if each.kind == "Namespace"]
    assert [each.fate for each in rows] == [Fate.REFUSED if told else Fate.MOVED]
    assert told in rows[0].reason


def test_names_and_numbers_of_namespaces_have_a_limit() -> None:
    names = [f"n{index:02}" for index in range(elsewhere.MOST + 1)]
    rows = list(elsewhere.namespaces(ACME, [*names[:1], "a" * 47, *names[1:]], {}))
    assert [each.name for each in rows if each.fate is Fate.REFUSED] == ["a" * 47, names[-2], names[-1]]


def test_namespaces_of_each_cluster_do_not_move() -> None:
    found: list[Json] = [{"metadata": {"name": name}} for name in (*surroundings.OWN_NAMESPACES, "acme", "shop")]
    found.append({"metadata": {"name": "ending", "deletionTimestamp": "t"}})
    assert elsewhere.others(found, "acme") == ["shop"]


def test_the_owners_of_the_tenant_own_what_is_created() -> None:
    wanted = elsewhere.subnamespace(ACME, "shop")
    assert (wanted.key, wanted.spec.mode, wanted.spec.owners) == ("acme/shop", Mode.WORKSPACE, (user("alice"),))
    assert elsewhere.waits("shop", None) == "Subnamespace 'shop' is created"


def test_what_is_in_the_subnamespace_already_is_not_lost_and_not_taken_over() -> None:
    """A Service, too, which is not compared elsewhere."""
    spec: Json = {"selector": {"a": "b"}}
    inside = {CONFIG_MAPS: [made("c", data={"a": "1"})], SERVICES: [made("s", spec=spec)]}
    other = {CONFIG_MAPS: [made("c", data={"a": "2"})], SERVICES: [made("s", spec={"selector": {"a": "other"}})]}
    refused = [each.name for each in planned(shop(inside, other)) if each.fate is Fate.REFUSED]
    assert refused == ["shop/s", "shop/c"]
    same = {CONFIG_MAPS: inside[CONFIG_MAPS], SERVICES: [made("s", spec={**spec, "clusterIP": "10.0.0.1"})]}
    assert not [each for each in planned(shop(inside, same)) if each.fate is Fate.REFUSED]


def binding(*namespaces: str) -> Json:
    subjects = [{"kind": "ServiceAccount", "name": "robot", "namespace": each} for each in namespaces]
    return made("b", roleRef={"kind": "Role", "name": "r"}, subjects=subjects)


def test_service_accounts_of_bindings_follow_their_namespaces() -> None:
    found = shop({ROLE_BINDINGS: [binding("shop", "acme")]})
    whole = shop({ROLES: [made("r", rules=[])], ROLE_BINDINGS: [binding("shop", "acme")]})
    assert not [each for each in planned(whole) if each.fate is Fate.REFUSED]
    moved = outmoves.next_elsewhere([found])
    body: Any = moved.writes[0].request.body
    assert body["metadata"]["namespace"] == PLACE
    assert [each["namespace"] for each in body["subjects"]] == [PLACE, "acme"]
    foreign = [each for each in planned(shop({ROLE_BINDINGS: [binding("kube-system")]})) if each.fate is Fate.REFUSED]
    assert "is none of the tenant" in foreign[0].reason


def test_the_mirror_has_rights_in_child_namespaces_while_it_returns_only() -> None:
    def at(to: ControlPlaneChoice) -> Tenant:
        conversion = Conversion(to=to, step=ConversionStep.MOVING)
        return replace(TENANT, status=TenantStatus(conversion=conversion))

    found = [
        each for each in journal.rights(at(ControlPlaneChoice.SHARED), [PLACE]) if each.metadata.namespace == PLACE
    ]
    assert [(each.role_ref.name, each.subjects[0].name) for each in found] == [("tenantry-owner", "acme")]
    entering = journal.rights(at(ControlPlaneChoice.VIRTUAL), [PLACE])
    assert {each.metadata.namespace for each in entering} == {"acme"}
