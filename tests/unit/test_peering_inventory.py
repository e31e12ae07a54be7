"""KEP-2149, KEP-4322: what other programs read about a peer, and what they never read."""

from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.clusterinventory import (
    CLUSTER_ID,
    CLUSTER_MANAGER,
    CONTROL_PLANE_HEALTHY,
    ClusterProfile,
    ClusterProfileSpec,
    ClusterProfileStatus,
    ProfileManager,
)
from tenantry.api.model import Condition, ConditionStatus, ObjectMeta
from tenantry.api.peercluster import (
    AcceptedOffer,
    OfferStatus,
    PeerCluster,
    PeerClusterSpec,
    PeerClusterStatus,
    PeerHost,
)
from tenantry.api.peertunnel import Dial
from tenantry.controllers.peering.inventory import profile
from tenantry.install import clusterinventory, manifests

NOW, LATER = "2027-01-01T00:00:00Z", "2027-01-01T00:01:00Z"
ID = "c5a5a5b0-0000-4000-8000-000000000001"
HALF = PeerHost(
    server="https://berlin.example.com:6443",
    ca="the authority",
    guest="home",
    credentials_secret_name="berlin-token",
    accept=AcceptedOffer(hard={"cpu": "4"}),
)


def reachable(status: ConditionStatus = ConditionStatus.TRUE, message: str = "it answers") -> Condition:
    """Return the condition of a peer that answers, or does not."""
    return Condition(
        type=reasons.REACHABLE, status=status, reason=reasons.ANSWERS, message=message, last_transition_time=NOW
    )


def peer(half: PeerHost = HALF, **status: object) -> PeerCluster:
    """Return a PeerCluster whose peer answers."""
    known: dict[str, object] = {"cluster_id": ID, "version": "v1.36.1", "conditions": (reachable(),), **status}
    return PeerCluster(
        metadata=ObjectMeta(name="berlin", uid="peer-uid"),
        spec=PeerClusterSpec(host=half),
        status=PeerClusterStatus(**known),  # type: ignore[arg-type] # a field each
    )


def first(found: PeerCluster, labels: dict[str, str] | None = None) -> ClusterProfileStatus:
    """Return the status of a ClusterProfile that had none."""
    wanted = profile.status(found, labels or {}, ClusterProfileStatus(), NOW)
    assert wanted is not None
    return wanted


def properties(status: ClusterProfileStatus) -> dict[str, str]:
    """Return the properties of a ClusterProfile by name."""
    return {each.name: each.value for each in status.properties}


def test_a_profile_has_the_facts_of_the_peer_and_ends_with_its_peercluster() -> None:
    whole = profile.profile(peer())
    assert (whole.key, whole.metadata.labels) == ("tenantry-system/berlin", {CLUSTER_MANAGER: "tenantry"})
    assert [each.uid for each in whole.metadata.owner_references] == ["peer-uid"]
    assert whole.spec == ClusterProfileSpec(display_name="berlin", cluster_manager=ProfileManager(name="tenantry"))
    offer = OfferStatus(hard={"cpu": "4", "pods": "20"})
    status = first(peer(offer=offer), {"topology.kubernetes.io/region": "eu"})
    assert status.version.kubernetes == "v1.36.1"
    assert properties(status) == {
        CLUSTER_ID: ID,
        "topology.kubernetes.io/region": "eu",
        "offer.federation.tenantry.dev/cpu": "4",
        "offer.federation.tenantry.dev/pods": "20",
    }
    (healthy,) = status.conditions
    assert (healthy.type, healthy.status) == (CONTROL_PLANE_HEALTHY, ConditionStatus.TRUE)


def test_the_way_to_the_peer_has_no_credentials_and_is_left_out_if_nothing_here_can_dial_it() -> None:
    (access,) = first(peer()).access_providers
    sent = msgspec.to_builtins(access)
    authority = base64.b64encode(b"the authority").decode()
    server = {"server": HALF.server, "certificate-authority-data": authority}
    assert sent == {"name": "tenantry", "cluster": server}
    assert first(peer(replace(HALF, dial=Dial.PEER))).access_providers == ()


def test_nothing_is_written_while_nothing_changes() -> None:
    found = peer(offer=OfferStatus(hard={"cpu": "4"}))
    assert profile.status(found, {}, first(found), LATER) is None


def test_a_value_that_changes_gets_a_new_time_and_the_others_keep_theirs() -> None:
    found = peer(offer=OfferStatus(hard={"cpu": "4", "pods": "20"}))
    less = peer(offer=OfferStatus(hard={"cpu": "2", "pods": "20"}))
    status = profile.status(less, {}, first(found), LATER)
    assert status is not None
    times = {each.name.rpartition("/")[2]: each.last_observed_time for each in status.properties}
    assert times == {CLUSTER_ID: NOW, "cpu": LATER, "pods": NOW}


@pytest.mark.parametrize("silent", [ConditionStatus.UNKNOWN, ConditionStatus.FALSE])
def test_a_peer_that_does_not_answer_is_not_healthy_and_its_facts_stay(silent: ConditionStatus) -> None:
    before = first(peer())
    status = profile.status(peer(conditions=(reachable(silent),)), {}, before, LATER)
    assert status is not None
    assert [(each.status, each.last_transition_time) for each in status.conditions] == [(silent, LATER)]
    assert (status.properties, status.version) == (before.properties, before.version)


def test_a_peer_that_was_never_asked_is_of_unknown_health() -> None:
    status = first(peer(conditions=(), cluster_id="", version="", offer=UNSET))
    assert [each.status for each in status.conditions] == [ConditionStatus.UNKNOWN]
    assert (status.properties, status.version.kubernetes) == ((), "")


@given(
    text=st.text(max_size=80),
    labels=st.dictionaries(st.text(max_size=320), st.text(max_size=70), max_size=150),
    amounts=st.dictionaries(st.text(max_size=300), st.text(max_size=64), max_size=64),
)
def test_whatever_a_peer_reports_the_kind_takes_the_status(
    text: str, labels: dict[str, str], amounts: dict[str, str]
) -> None:
    """The peer is untrusted: the API server would refuse a status that is too long, and the health with it."""
    message = text * 1000
    lying = peer(
        cluster_id=text,
        version=text,
        offer=OfferStatus(hard=amounts),
        conditions=(reachable(ConditionStatus.FALSE, message),),
    )
    status = first(lying, {**labels, CLUSTER_ID: "another"})
    assert len(status.properties) <= profile.MOST_PROPERTIES
    assert all(1 <= len(each.name) <= 253 and 1 <= len(each.value) <= 1024 for each in status.properties)
    assert len(status.conditions[0].message) <= profile.MOST_MESSAGE
    # No label passes for the id.
    assert properties(status).get(CLUSTER_ID) in {None, text}
    assert profile.status(lying, {**labels, CLUSTER_ID: "another"}, status, LATER) is None


@pytest.mark.parametrize("version", ["1.36", "v1.36.1", "v1.36.1-eks-5e0fdde", "v1.36.0+k3s1"])
def test_versions_of_distributions_are_shown(version: str) -> None:
    assert first(peer(version=version)).version.kubernetes == version


@pytest.mark.parametrize("lie", ["v1.36.1\x1b[2J", "<script>", "v1", "v1.36\n"])
def test_what_is_no_version_and_no_id_is_left_out(lie: str) -> None:
    status = first(peer(version=lie, cluster_id=f"{lie} "))
    assert (status.version.kubernetes, properties(status)) == ("", {})


def test_a_changed_profile_is_corrected_and_only_where_it_differs() -> None:
    wanted = profile.profile(peer())
    assert profile.correction(wanted, wanted) == {}
    other = replace(wanted, metadata=replace(wanted.metadata, labels={"team": "a"}, owner_references=()))
    body = profile.correction(wanted, replace(other, spec=replace(other.spec, display_name="x")))
    assert body["metadata"]["labels"] == {CLUSTER_MANAGER: "tenantry"}
    assert [each["uid"] for each in body["metadata"]["ownerReferences"]] == ["peer-uid"]
    assert body["spec"] == {"displayName": "berlin"}


def test_the_manager_in_the_spec_decides_whose_a_profile_is() -> None:
    """A label is easily copied; the API server never changes the field."""
    meta = ObjectMeta(name="berlin", namespace="tenantry-system", labels={CLUSTER_MANAGER: "tenantry"})
    foreign = ClusterProfile(metadata=meta, spec=ClusterProfileSpec(cluster_manager=ProfileManager(name="karmada")))
    assert not profile.is_ours(foreign)
    assert profile.is_ours(profile.profile(peer()))


def test_the_kinds_of_other_projects_are_in_no_manifest_that_is_applied() -> None:
    """`kubectl apply`, the repairs of the operator and an uninstall would change or delete those of their projects."""
    foreign = {each["metadata"]["name"] for each in clusterinventory.definitions()}
    assert foreign == {"clusterproperties.about.k8s.io", "clusterprofiles.multicluster.x-k8s.io"}
    assert not foreign & {each["metadata"]["name"] for each in manifests.everything()}


def test_the_operator_cannot_change_a_property_or_delete_a_profile() -> None:
    objects = clusterinventory.rights(manifests.SERVICE_ACCOUNT)
    roles = [each for each in objects if each["kind"] in {"ClusterRole", "Role"}]
    verbs: dict[str, set[str]] = {}
    for role in roles:
        for rule in role["rules"]:
            for plural in rule["resources"]:
                verbs.setdefault(plural, set()).update(rule["verbs"])
    assert verbs["clusterproperties"] == {"get", "list", "watch", "create"}
    assert not {"delete", "deletecollection", "update"} & verbs["clusterprofiles"]
    (writes,) = [each for each in roles if each["kind"] == "Role"]
    assert writes["metadata"]["namespace"] == "tenantry-system"
