"""X03: the records of what peers hold have a bound, and belong to the tenant whose quota they are of."""

from __future__ import annotations

from tenantry.api import reasons
from tenantry.api.kubernetes import ResourceQuota
from tenantry.api.model import ObjectMeta
from tenantry.api.offloading import DesiredNamespace, NamespaceMap, NamespaceMapSpec
from tenantry.api.peercluster import PeerCluster, PeerClusterSpec, PeerGuest
from tenantry.api.tenantresourcequota import MAX_REMOTE, TenantResourceQuota
from tenantry.controllers.quota import status
from tenantry.world.shares import remote
from tenantry.world.shares.amounts import RemoteShare
from tenantry.world.shares.division import Division
from tenantry.world.shares.share import ROOT, TreeNamespace
from tenantry.world.shares.tree import Tree
from testkit.treeworld import settle, world_of

CPU = "requests.cpu"


def test_no_more_shares_are_recorded_than_one_object_has_and_the_others_say_so() -> None:
    tree = Tree({CPU: 10 * MAX_REMOTE})
    tree.put_namespace(TreeNamespace(name="acme", uid="1", key=ROOT, parent=""))
    names = [f"peer-{number:04}" for number in range(MAX_REMOTE)]
    known = [RemoteShare(namespace="acme", peer=name, number=1, held={CPU: 1}, given={CPU: 1}) for name in names]
    # Before the others by name: what is recorded already stays.
    late = ("acme", "berlin")
    tree.remote.wanted = {late: {CPU: 1}, **{each.key: {CPU: 1} for each in known}}
    remote.put_requests(tree, known)
    records = remote.next_records(tree, known, version=2, limit={CPU: 10 * MAX_REMOTE})
    assert [each.peer for each in records] == names
    blocked = status.verdict(tree, tree.shares[remote.uid(late)]).blocked
    assert blocked is not None
    assert blocked.reason == reasons.LIMIT_REACHED
    assert status.verdict(tree, tree.shares[remote.uid(known[0].key)]).blocked is None


def test_a_share_of_another_tenant_is_not_taken_from_this_one() -> None:
    """A namespace that has got another tenant is in the map as one of the tenant before, until it has left."""
    world = world_of(quota={CPU: 8})
    world.create(PeerCluster(metadata=ObjectMeta(name="berlin"), spec=PeerClusterSpec(guest=PeerGuest())))
    wanted = DesiredNamespace(name="acme", tenant="other", share={CPU: "3"})
    world.create(NamespaceMap(metadata=ObjectMeta(name="berlin"), spec=NamespaceMapSpec(desired={"acme": wanted})))
    settle(world)
    assert world.get(ResourceQuota.resource, "acme/tenantry-quota")["spec"]["hard"] == {CPU: "8"}
    assert world.get(TenantResourceQuota.resource, "acme")["status"].get("clusters", []) == []


def _records(tree: Tree, known: list[RemoteShare], version: int, whole: int) -> list[RemoteShare]:
    remote.put_requests(tree, known)
    Division(tree).divide()
    return remote.next_records(tree, known, version=version, limit={CPU: whole})


def test_what_pods_that_were_let_go_may_use_is_held_and_not_given() -> None:
    tree, key = Tree({CPU: 10}), ("acme", "berlin")
    tree.put_namespace(TreeNamespace(name="acme", uid="1", key=ROOT, parent=""))
    tree.remote.wanted, tree.remote.lost = {key: {CPU: 2}}, {key: {CPU: 3, "pods": 1}}
    (record,) = first = _records(tree, [], 5, 10)
    # A key that the quota of the tenant does not limit is no part of it.
    assert (record.held, record.given, record.number) == ({CPU: 5}, {CPU: 2}, 5)
    # What the peer confirms is what it was given, and it may still run these pods.
    tree.remote.confirmed = {key: 5}
    assert _records(tree, first, 6, 10) == first
    tree.remote.lost = {}
    (record,) = _records(tree, first, 7, 10)
    assert (record.held, record.given, record.number) == ({CPU: 2}, {CPU: 2}, 5)


def test_pods_that_were_let_go_are_held_without_a_share_and_all_or_nothing() -> None:
    tree, key = Tree({CPU: 10}), ("acme", "berlin")
    tree.put_namespace(TreeNamespace(name="acme", uid="1", key=ROOT, parent=""))
    tree.remote.lost = {key: {CPU: 11}}
    assert _records(tree, [], 5, 10) == []
    assert status.verdict(tree, tree.shares[remote.uid(key)]).blocked is not None
    tree.remote.lost = {key: {CPU: 4}}
    (record,) = found = _records(tree, [], 6, 10)
    assert (record.held, record.given, record.number) == ({CPU: 4}, {}, 0)
    assert _records(tree, found, 7, 10) == found
    # The peer never got anything, so that there is nothing to confirm.
    tree.remote.lost = {}
    assert _records(tree, found, 8, 10) == []
