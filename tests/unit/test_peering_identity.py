"""The ways to act as the Node of a peer, as far as no API server decides: keys, and what an administrator grants."""

from __future__ import annotations

import datetime as dt
import ipaddress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.kubernetes import ClusterRole, ClusterRoleBinding, Namespace
from tenantry.api.model import ObjectMeta
from tenantry.api.peercluster import PEERS_NAMESPACE, NodeIdentities, PeerCluster, PeerClusterSpec, PeerHost
from tenantry.api.peertunnel import Dial, tunnel_name
from tenantry.api.signing import grant_name
from tenantry.controllers.peering import status
from tenantry.controllers.peering.guests.guest import ACCOUNTS
from tenantry.controllers.peering.guests.guest import meta as meta_of
from tenantry.controllers.peering.link.certificates import read
from tenantry.controllers.peering.link.grants import PeerGrants
from tenantry.engine.cluster import Cluster, ClusterId
from tenantry.hosting.selfsigned import self_signed
from tenantry.install.peers import node_grant
from testkit.clock import ManualClock
from testkit.model import World
from testkit.worldclient import WorldClient

START = dt.datetime(2027, 1, 1, tzinfo=dt.UTC)


def test_a_serving_certificate_of_its_own_names_the_address_and_is_renewed_in_time() -> None:
    names = [x509.IPAddress(ipaddress.ip_address("FD00::7"))]
    found = read(*self_signed("system:node:peer-berlin", names, now=START, life=dt.timedelta(days=365)))
    certificate = x509.load_pem_x509_certificate(found.certificate)
    assert load_pem_private_key(found.key, None).public_key() == certificate.public_key()
    told = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert told.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("fd00::7")]
    # It must not sign others.
    assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert certificate.not_valid_before_utc < START < found.renewed < found.expires


def test_an_administrator_grants_one_user_and_the_group_of_nodes_until_the_peer_ends() -> None:
    operator = {"kind": "ServiceAccount", "name": "tenantry-operator", "namespace": "tenantry-system"}
    peer = PeerCluster(metadata=ObjectMeta(name="berlin", uid="p1"), spec=PeerClusterSpec())
    role, binding = node_grant(peer, [operator])
    assert role["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["users"],
            "verbs": ["impersonate"],
            "resourceNames": ["system:node:peer-berlin"],
        },
        {"apiGroups": [""], "resources": ["groups"], "verbs": ["impersonate"], "resourceNames": ["system:nodes"]},
    ]
    assert (binding["roleRef"]["name"], binding["subjects"]) == (role["metadata"]["name"], [operator])
    for each in (role, binding):
        assert [(owner["kind"], owner["uid"]) for owner in each["metadata"]["ownerReferences"]] == [
            ("PeerCluster", "p1")
        ]


def test_the_condition_tells_the_limits_of_impersonation() -> None:
    half = PeerHost(server="https://peer:6443", ca="", guest="home", credentials_secret_name="s")

    def told(identity: NodeIdentities) -> str:
        spec = PeerClusterSpec(host=replace(half, node_identity=identity))
        found = PeerCluster(metadata=ObjectMeta(name="berlin"), spec=spec)
        state = status.HostState(answers=True, has_node=True)
        known = status.compute(found, status.GuestState(), state, "")
        return next(each.message for each in known.conditions if each.type == reasons.NODE_READY)

    assert "impersonation" not in told(NodeIdentities.CERTIFICATE)
    assert "does not verify" in told(NodeIdentities.IMPERSONATION)


@pytest.mark.parametrize("way", ["back", "without a half"])
async def test_rights_for_a_peer_end_when_it_does_not_need_them(way: str) -> None:
    half = PeerHost(
        server="https://peer:6443",
        ca="",
        guest="home",
        credentials_secret_name="s",
        node_identity=NodeIdentities.IMPERSONATION,
        dial=Dial.PEER,
    )
    meta = ObjectMeta(name="berlin", uid="p1", generation=3)
    peer = PeerCluster(metadata=meta, spec=PeerClusterSpec(host=half))
    world, grants = World(), PeerGrants()
    home = Cluster(ClusterId("home"), WorldClient(world, lambda: "none"), clock=ManualClock(START), instance="a")
    kinds = (ClusterRole.resource, ClusterRoleBinding.resource)
    world.put_in(Namespace.resource, {"metadata": {"name": PEERS_NAMESPACE}})

    def granted(name: str) -> list[bool]:
        keys = [*((kind, grant_name(name)) for kind in kinds), (ACCOUNTS, f"{PEERS_NAMESPACE}/{name}-tunnel")]
        return [key in world.objects for key in keys]

    for each in (peer, replace(peer, metadata=replace(meta, name="munich", uid="p2"))):
        for kind, value in zip(kinds, node_grant(each, []), strict=True):
            world.put_in(kind, value)
        world.put_in(ACCOUNTS, meta_of(each, tunnel_name(each.metadata.name)))
    await grants.keep(home, peer)
    assert granted("berlin") == [True, True, True]
    spec = PeerClusterSpec(host=replace(half, node_identity=NodeIdentities.CERTIFICATE, dial=Dial.HOME))
    changed = replace(peer, metadata=replace(meta, generation=4), spec=spec if way == "back" else PeerClusterSpec())
    await grants.keep(home, changed)
    assert granted("berlin") == [False, False, False]
    # Nor is that of another peer, or of one that had the name before.
    await grants.keep(home, replace(changed, metadata=replace(meta, name="munich", uid="p3")))
    assert granted("munich") == [True, True, True]
