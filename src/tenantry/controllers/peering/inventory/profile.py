"""The ClusterProfile of a peer: pure.

    PeerCluster "berlin" ─► ClusterProfile tenantry-system/berlin
      Reachable               condition ControlPlaneHealthy
      status.version          version.kubernetes
      status.clusterId        property cluster.clusterset.k8s.io
      labels of the Node      properties of the same names
      status.offer            properties offer.federation.tenantry.dev/cpu and so on
      spec.host.server, ca    accessProviders, if this cluster connects to the peer

What the peer reports is untrusted: what is no id, version or property is left out. The status is written only when one
of these changes, so that a peer that answers costs no writes. The time of a property is when its value was first seen.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.clusterinventory import (
    ACCESS_PROVIDER,
    CLUSTER_ID,
    CLUSTER_MANAGER,
    CONTROL_PLANE_HEALTHY,
    MOST_NAME,
    MOST_VALUE,
    PROFILES_NAMESPACE,
    AccessProvider,
    ClusterProfile,
    ClusterProfileSpec,
    ClusterProfileStatus,
    ClusterVersion,
    ProfileManager,
    ProfileProperty,
    ProfileServer,
)
from tenantry.api.marks import MANAGER
from tenantry.api.model import Condition, ConditionStatus, Json, ObjectMeta, OwnerReference
from tenantry.api.names import DNS_SUBDOMAIN
from tenantry.api.peercluster import PREFIX, OfferStatus, PeerCluster, PeerHost
from tenantry.api.peertunnel import Dial
from tenantry.engine.conditions import Wanted, find, merge

OFFER = f"offer.{PREFIX}/"
"""Before the name of a resource: the property with the amount that the peer offers."""

MOST_PROPERTIES = 128
MOST_MESSAGE = 1024

_VERSION = re.compile(r"v?[0-9]+[.][0-9]+[-+.0-9A-Za-z]{0,56}")
_ID = re.compile(DNS_SUBDOMAIN.removeprefix("^").removesuffix("$"))


def is_ours(found: ClusterProfile) -> bool:
    """Return whether Tenantry keeps a ClusterProfile."""
    return found.spec.cluster_manager.name == MANAGER


def profile(peer: PeerCluster) -> ClusterProfile:
    """Return the ClusterProfile of a peer, without its status."""
    resource, meta = PeerCluster.resource, peer.metadata
    owner = OwnerReference(api_version=resource.api_version, kind=resource.kind, name=meta.name, uid=meta.uid)
    return ClusterProfile(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=PROFILES_NAMESPACE,
            labels={CLUSTER_MANAGER: MANAGER},
            owner_references=(owner,),
        ),
        spec=ClusterProfileSpec(display_name=meta.name, cluster_manager=ProfileManager(name=MANAGER)),
    )


def correction(wanted: ClusterProfile, found: ClusterProfile) -> Json:
    """Return the merge patch that makes the object as it should be, without its status; {} if it is."""
    meta: Json = {}
    label = found.metadata.labels.get(CLUSTER_MANAGER)
    if label != MANAGER:
        meta["labels"] = {CLUSTER_MANAGER: MANAGER}
    if found.metadata.owner_references != wanted.metadata.owner_references:
        meta["ownerReferences"] = [
            {"apiVersion": each.api_version, "kind": each.kind, "name": each.name, "uid": each.uid}
            for each in wanted.metadata.owner_references
        ]
    body: Json = {"metadata": meta} if meta else {}
    if found.spec.display_name != wanted.spec.display_name:
        body["spec"] = {"displayName": wanted.spec.display_name}
    return body


def status(
    peer: PeerCluster, labels: Mapping[str, str], before: ClusterProfileStatus, now: str
) -> ClusterProfileStatus | None:
    """Return the status of the ClusterProfile of a peer; None if the one that it has is right.

    Args:
        peer: The PeerCluster, with the status that it gets.
        labels: Those of its Node.
        before: The status that it has.
        now: RFC 3339.
    """
    reachable = find(peer.status.conditions, reasons.REACHABLE)
    wanted = ClusterProfileStatus(
        conditions=_conditions(before.conditions, reachable, now),
        version=ClusterVersion(kubernetes=_matching(_VERSION, peer.status.version)),
        properties=_properties(peer, labels),
        access_providers=_access(peer.spec.host),
    )
    times = {(each.name, each.value): each.last_observed_time or now for each in before.properties}
    known = replace(before, properties=tuple(replace(each, last_observed_time="") for each in before.properties))
    if known == wanted:
        return None
    # The first release of the kind requires the time. Of a value that stays, it stays: a later release may have dropped
    # a field that is written here, and a write that changes nothing costs no resourceVersion.
    observed = (replace(each, last_observed_time=times.get((each.name, each.value), now)) for each in wanted.properties)
    return replace(wanted, properties=tuple(observed))


def _conditions(before: Sequence[Condition], reachable: Condition | None, now: str) -> tuple[Condition, ...]:
    if reachable is None:
        words = "the operator has not asked the API server of the peer yet"
        healthy = Wanted(CONTROL_PLANE_HEALTHY, False, reasons.PROGRESSING, words, unknown=True)
    else:
        healthy = Wanted(
            CONTROL_PLANE_HEALTHY,
            reachable.status is ConditionStatus.TRUE,
            reachable.reason,
            reachable.message[:MOST_MESSAGE],
            unknown=reachable.status is ConditionStatus.UNKNOWN,
        )
    return merge(before, [healthy], generation=0, now=now)


def _properties(peer: PeerCluster, labels: Mapping[str, str]) -> tuple[ProfileProperty, ...]:
    """Return the properties of a peer by name; none has a time yet."""
    found: dict[str, str] = dict(labels)
    offer = peer.status.offer
    if isinstance(offer, OfferStatus):
        found |= {f"{OFFER}{key}": value for key, value in offer.hard.items()}
    # Last: a label never stands for the id.
    found[CLUSTER_ID] = _matching(_ID, peer.status.cluster_id)
    good = [
        ProfileProperty(name=name, value=value)
        for name, value in sorted(found.items())
        if name and len(name) <= MOST_NAME and value and len(value) <= MOST_VALUE
    ]
    first = [each for each in good if each.name == CLUSTER_ID]
    others = [each for each in good if each.name != CLUSTER_ID]
    return (*first, *others[: MOST_PROPERTIES - 1])


def _access(half: object) -> tuple[AccessProvider, ...]:
    # A peer that connects to this cluster has an address that nothing here reaches.
    if not isinstance(half, PeerHost) or half.dial is Dial.PEER:
        return ()
    authority = base64.b64encode(half.ca.encode()).decode()
    return (
        AccessProvider(
            name=ACCESS_PROVIDER, cluster=ProfileServer(server=half.server, certificate_authority_data=authority)
        ),
    )


def _matching(pattern: re.Pattern[str], text: str) -> str:
    return text if pattern.fullmatch(text) is not None else ""
