"""`tenantry diff` shows what the operator would change: against a world without I/O, and then nothing once it did."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from tenantry.api import reasons
from tenantry.api.errors import InputError, NotFound
from tenantry.api.kubernetes import LimitRange, Namespace, NetworkPolicy, ResourceQuota, RoleBinding
from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.quota import Quota
from tenantry.api.subnamespace import Adoption, InheritanceMode, Mode, Subnamespace, SubnamespaceSpec
from tenantry.api.tenant import Tenant
from tenantry.engine.plan import StepAction
from tenantry.views.drift.changes import TenantDrift, find
from tenantry.views.manifests import Manifests
from tenantry.world import inheritance
from testkit.model import Json, World
from testkit.treeworld import PEOPLE, add_subnamespace, operator, settle, world_of
from testkit.worldclient import WorldClient
from testkit.worlds import CLUSTER_UID, tenant

KINDS = [each.resource for each in (Namespace, LimitRange, NetworkPolicy, ResourceQuota, RoleBinding)]
SYNC_SECRETS = msgspec.structs.replace(PEOPLE, secrets=InheritanceMode.SYNC)
CORE = "ResourceQuota acme/tenantry-quota"


def _world() -> World:
    world = world_of(quota={"requests.cpu": 10})
    world.put_in(Namespace.resource, {"metadata": {"name": "kube-system", "uid": CLUSTER_UID}})
    return world


def _find(world: World, names: Sequence[str] = (), manifests: Manifests | None = None) -> TenantDrift:
    (found,) = asyncio.run(find(WorldClient(world, lambda: "none"), names, manifests))
    return found


def _titles(found: TenantDrift) -> list[str]:
    return [f"{each.kind} {each.key}" for each in found.changes]


def _hard(found: TenantDrift) -> dict[str, str]:
    quotas = [each.after for each in found.changes if each.key.endswith("/tenantry-quota") and each.after is not None]
    return {each["metadata"]["namespace"]: each["spec"]["hard"]["requests.cpu"] for each in quotas}


def _subnamespace(name: str, namespace: str, cpu: int) -> Subnamespace:
    spec = SubnamespaceSpec(mode=Mode.WORKSPACE, inheritance=PEOPLE, quota=Quota(hard={"requests.cpu": cpu}))
    return Subnamespace(metadata=ObjectMeta(name=name, namespace=namespace), spec=spec)


def test_a_settled_tree_has_no_drift() -> None:
    """E09: shares that were moved in batches are what the plan of the whole tree has."""
    world = _world()
    child = add_subnamespace(world, quota=Quota(hard={"requests.cpu": 4}))
    settle(world)
    add_subnamespace(world, "inner", child, quota=Quota(hard={"requests.cpu": 1}))
    settle(world)
    assert _find(world) == TenantDrift(tenant="acme", changes=(), blocked=())


def test_a_new_child_is_shown_with_its_share_and_what_its_parent_keeps() -> None:
    """E04, E09: in the order of writing, the binding of its owners last; then the operator writes just that."""
    world = _world()
    child = add_subnamespace(world, quota=Quota(hard={"requests.cpu": 4}))
    found = _find(world, ["acme"])
    assert _titles(found) == [
        "Subnamespace acme/team",
        f"Namespace {child}",
        f"LimitRange {child}/tenantry-limits",
        f"NetworkPolicy {child}/tenantry-isolation",
        f"ResourceQuota {child}/tenantry-counts",
        CORE,
        f"ResourceQuota {child}/tenantry-quota",
        f"RoleBinding {child}/tenantry-owner",
    ]
    assert _hard(found) == {"acme": "6", child: "4"}
    settle(world)
    for each in found.changes[1:]:
        live = world.get(*_place(each.kind, each.key))
        assert each.after is not None
        assert msgspec.json.encode(live.get("spec")) == msgspec.json.encode(each.after.get("spec")), each.key


@pytest.mark.parametrize(("cpu", "fits"), [(3, False), (1, True)])
def test_a_child_of_a_new_tenant_that_asks_for_more_than_its_quota_is_blocked(cpu: int, fits: bool) -> None:  # noqa: FBT001 - a column of the table
    """E09: both are in the files, and the API server, which has neither, cannot refuse the child yet."""
    world = _world()
    new = tenant("small", quota={"requests.cpu": 2})
    children = [_subnamespace("big", "small", cpu), _subnamespace("other", "small", 1)]
    found = _find(world, manifests=Manifests([new], children))
    assert {"Tenant small", "Subnamespace small/big", "Subnamespace small/other"} <= set(_titles(found))
    assert [each.reason for each in found.blocked] == ([] if fits else [reasons.QUOTA_INSUFFICIENT])
    assert fits or found.blocked[0].message.startswith("Subnamespace 'small/big': ")


def _place(kind: str, key: str) -> tuple[Resource, str]:
    return next((resource, key) for resource in KINDS if resource.kind == kind)


def test_edits_by_hand_are_shown_and_the_cluster_stays_as_it_is() -> None:
    world = _world()
    child = add_subnamespace(world, quota=Quota(hard={"requests.cpu": 4}))
    settle(world)
    world.patch(ResourceQuota.resource, f"{child}/tenantry-quota", {"spec": {"hard": {"requests.cpu": "9"}}})
    world.delete(NetworkPolicy.resource, "acme/tenantry-isolation")
    revision = world.revision
    found = _find(world)
    assert sorted(_titles(found)) == ["NetworkPolicy acme/tenantry-isolation", f"ResourceQuota {child}/tenantry-quota"]
    assert world.revision == revision


def test_the_quota_of_a_tenant_without_children_is_shown() -> None:
    world = _world()
    world.patch(ResourceQuota.resource, "acme/tenantry-quota", {"spec": {"hard": {"requests.cpu": "9"}}})
    assert _hard(_find(world)) == {"acme": "10"}
    world.patch(Tenant.resource, "acme", {"spec": {"quota": {"hard": {"requests.cpu": None}}}})
    (gone,) = [each for each in _find(world).changes if each.kind == "ResourceQuota"]
    assert gone.action is StepAction.DELETE


def test_a_file_is_compared_with_its_own_change_first() -> None:
    """E04: a larger share and a child below, of which the one that does not fit is blocked."""
    world = _world()
    child = add_subnamespace(world, quota=Quota(hard={"requests.cpu": 4}))
    settle(world)
    team, inner = _subnamespace("team", "acme", 5), _subnamespace("inner", child, 2)
    found = _find(world, manifests=Manifests([], [team, inner]))
    assert _titles(found)[:2] == ["Subnamespace acme/team", f"Subnamespace {child}/inner"]
    assert sorted(_hard(found).values()) == ["2", "3", "5"]
    greedy = _find(world, manifests=Manifests([], [_subnamespace("inner", child, 50)]))
    (blocked,) = greedy.blocked
    assert (blocked.reason, blocked.message.startswith(f"Subnamespace '{child}/inner': ")) == (
        reasons.QUOTA_INSUFFICIENT,
        True,
    )


def test_a_new_tenant_in_a_file_is_shown_with_its_subnamespaces() -> None:
    """E04: the names of their namespaces depend on a uid that does not exist yet."""
    world = _world()
    zeta = tenant("zeta", quota={"requests.cpu": 2})
    found = _find(world, manifests=Manifests([zeta], [_subnamespace("team", "zeta", 1)]))
    assert (_titles(found)[0], _titles(found)[-1]) == ("Tenant zeta", "Subnamespace zeta/team")
    assert _hard(found) == {"zeta": "2"}


@pytest.mark.parametrize(
    ("namespace", "error"), [("nowhere", NotFound), ("kube-system", InputError)], ids=["missing", "foreign"]
)
def test_a_file_whose_parent_is_in_no_tree_is_refused(namespace: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"{namespace}"):
        _find(_world(), manifests=Manifests([], [_subnamespace("team", namespace, 1)]))


def test_a_tenant_that_is_being_deleted_has_no_drift() -> None:
    world = _world()
    world.delete(NetworkPolicy.resource, "acme/tenantry-isolation")
    world.patch(Tenant.resource, "acme", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert _find(world).changes == ()
    operator(world).settle(5)


def test_a_suspension_shows_the_bindings_that_it_empties() -> None:
    world = _world()
    child = add_subnamespace(world)
    settle(world)
    guests: Json = {
        "metadata": {"name": "guests", "namespace": "acme"},
        "roleRef": {},
        "subjects": [{"kind": "User", "name": "carl"}],
    }
    world.put_in(KINDS[-1], guests)
    owner = msgspec.convert(world.get(Tenant.resource, "acme"), Tenant)
    spec = msgspec.structs.replace(owner.spec, suspended=True)
    found = _find(world, manifests=Manifests([msgspec.structs.replace(owner, spec=spec)], []))
    bindings = [each for each in found.changes if each.name == "guests"]
    assert [each.namespace for each in bindings] == ["acme", child]
    for binding in bindings:
        assert binding.after is not None
        assert not binding.after.get("subjects")


def test_a_lease_that_ended_shows_what_is_deleted() -> None:
    """E04: the Subnamespace, and then its namespace; the share stays until the namespace is gone."""
    world = _world()
    child = add_subnamespace(world, quota=Quota(hard={"requests.cpu": 4}))
    settle(world)
    world.patch(Subnamespace.resource, "acme/team", {"spec": {"expiresAt": "2001-01-01T00:00:00Z"}})
    found = _find(world)
    assert [(each.action, each.kind, each.key) for each in found.changes] == [
        (StepAction.DELETE, "Subnamespace", "acme/team"),
        (StepAction.DELETE, "Namespace", child),
    ]


def test_a_subnamespace_without_its_finalizer_gets_it_before_its_namespace() -> None:
    world = _world()
    child = add_subnamespace(world)
    settle(world)
    world.patch(Subnamespace.resource, "acme/team", {"metadata": {"finalizers": []}})
    assert _titles(_find(world)) == ["Subnamespace acme/team"]
    assert child not in _titles(_find(world))


def test_inherited_objects_are_shown_level_by_level_without_the_values_of_secrets() -> None:
    """E06: a copy that is missing, one that was edited, and one whose source is gone."""
    world = _world()
    child = add_subnamespace(world, inheritance=SYNC_SECRETS)
    settle(world)
    inner = add_subnamespace(world, "inner", child, inheritance=SYNC_SECRETS)
    settle(world)
    for name in ("old", "same"):
        world.put_in(inheritance.SECRETS, {"metadata": {"name": name, "namespace": "acme"}, "data": {"k": "c2VjcmV0"}})
    settle(world)
    assert _find(world).changes == ()
    world.delete(inheritance.SECRETS, "acme/old")
    world.put_in(inheritance.SECRETS, {"metadata": {"name": "new", "namespace": "acme"}, "data": {"k": "c2VjcmV0"}})
    world.patch(inheritance.SECRETS, f"{child}/same", {"data": {"k": "b3RoZXI="}})
    found = _find(world)
    assert sorted((each.action.value, each.key) for each in found.changes) == sorted(
        [
            *(("create", f"{place}/new") for place in (child, inner)),
            *(("delete", f"{place}/old") for place in (child, inner)),
            ("update", f"{child}/same"),
        ]
    )
    texts = msgspec.json.encode([(each.before, each.after) for each in found.changes])
    assert b"c2VjcmV0" not in texts
    assert b"b3RoZXI=" not in texts
    assert b"*** (after)" in texts
    settle(world)
    assert _find(world).changes == ()


def test_a_move_shows_the_deletion_of_the_old_subnamespace_once() -> None:
    """E04: the namespace is bound to the new one first."""
    world = _world()
    child = add_subnamespace(world)
    other = add_subnamespace(world, "other")
    settle(world)
    add_subnamespace(world, namespace=other, adopt=Adoption(namespace=child, parent="acme"))
    found = _find(world)
    deleted = [f"{each.kind} {each.key}" for each in found.changes if each.action is StepAction.DELETE]
    assert deleted == ["Subnamespace acme/team"]
    assert _titles(found).index(f"Namespace {child}") < _titles(found).index("Subnamespace acme/team")
