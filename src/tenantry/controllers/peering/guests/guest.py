"""What the guest half of a PeerCluster becomes at the peer: pure.

    PeerCluster "a" ─► Tenant "peer-a", owned by ServiceAccount "a" of `tenantry-peers`
                    ─► Lease "a" there, which the home renews with that account
                    ─► ServiceAccount "a-renew", which may only request tokens of these two accounts

All have the PeerCluster as their owner, so that Kubernetes deletes them with it, also while no operator runs.
"""

from __future__ import annotations

import msgspec

from tenantry.api import marks, reasons
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import Json, Resource
from tenantry.api.owner import OwnerKind
from tenantry.api.peercluster import PEERS_NAMESPACE, GuestNames, PeerCluster, PeerGuest, renewer_name, tenant_name
from tenantry.api.tenant import Tenant
from tenantry.controllers.peering.guests.presence import Stage
from tenantry.engine import conditions
from tenantry.engine.lease import Lease
from tenantry.engine.plan import Blocked

ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
ROLES = Resource(RBAC_GROUP, "v1", "roles", "Role")
BINDINGS = Resource(RBAC_GROUP, "v1", "rolebindings", "RoleBinding")

_MOST_DEPTH = 2
_ANY_NAME = "[a-z0-9-]+"


def objects(found: PeerCluster, guest: PeerGuest, stage: Stage = Stage.SERVED) -> tuple[tuple[Resource, Json], ...]:
    """Return what serves a home, each with its kind, in the order in which it is written.

    Args:
        found: The PeerCluster.
        guest: Its guest half.
        stage: What becomes of the guest. The accounts stay, with which its home comes back.
    """
    name = found.metadata.name
    both = [name, renewer_name(name)]
    tokens: Json = {
        "apiGroups": [""],
        "resources": ["serviceaccounts/token"],
        "verbs": ["create"],
        "resourceNames": both,
    }
    binding: Json = {
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": ROLES.kind, "name": renewer_name(name)},
        "subjects": [{"kind": ACCOUNTS.kind, "name": renewer_name(name), "namespace": PEERS_NAMESPACE}],
    }
    lease: Json = {
        "apiGroups": [Lease.resource.group],
        "resources": [Lease.resource.plural],
        "verbs": ["get", "patch"],
        "resourceNames": [name],
    }
    renewing: Json = {
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": ROLES.kind, "name": name},
        "subjects": [{"kind": ACCOUNTS.kind, "name": name, "namespace": PEERS_NAMESPACE}],
    }
    accounts = [(ACCOUNTS, {**meta(found, each), "automountServiceAccountToken": False}) for each in both]
    return (
        *accounts,
        (ROLES, {**meta(found, renewer_name(name)), "rules": [tokens]}),
        (BINDINGS, {**meta(found, renewer_name(name)), **binding}),
        (Lease.resource, {**meta(found, name), "spec": {}}),
        (ROLES, {**meta(found, name), "rules": [lease]}),
        (BINDINGS, {**meta(found, name), **renewing}),
        *([] if stage is Stage.ENDED else [(Tenant.resource, _tenant(found, guest, stage))]),
    )


def meta(found: PeerCluster, name: str, namespace: str = PEERS_NAMESPACE) -> Json:
    """Return an object without content that Kubernetes deletes with a PeerCluster."""
    owner: Json = {
        "apiVersion": found.resource.api_version,
        "kind": found.resource.kind,
        "name": found.metadata.name,
        "uid": found.metadata.uid,
        "controller": True,
    }
    where = {"namespace": namespace} if namespace else {}
    labels = {marks.MANAGED_BY: marks.MANAGER}
    return {"metadata": {"name": name, **where, "labels": labels, "ownerReferences": [owner]}}


def _tenant(found: PeerCluster, guest: PeerGuest, stage: Stage) -> Json:
    owner = {"kind": OwnerKind.SERVICE_ACCOUNT.value, "name": found.metadata.name, "namespace": PEERS_NAMESPACE}
    spec: Json = {
        "owners": [owner],
        "quota": {"hard": msgspec.to_builtins(guest.quota.hard)},
        "namespaces": {
            "maxCount": guest.max_namespaces,
            "maxDepth": _MOST_DEPTH,
            "homeNames": {"clusterId": guest.cluster_id or found.status.guest_id},
            "exactNames": _ANY_NAME if guest.names is GuestNames.SAME else "",
        },
    }
    if stage is Stage.SUSPENDED:
        spec["suspended"] = True
    return {**meta(found, tenant_name(found.metadata.name), namespace=""), "spec": spec}


def foreign(found: PeerCluster, tenant: Tenant | None) -> Blocked | None:
    """Return why a Tenant of the right name cannot serve the home; None if there is none, or it is ours."""
    owners = tenant.metadata.owner_references if tenant is not None else ()
    if tenant is None or any(each.uid == found.metadata.uid for each in owners):
        return None
    message = (
        f"Tenant {tenant.metadata.name!r} exists, and was not made for this PeerCluster: delete it, or give the"
        " PeerCluster another name"
    )
    return Blocked(reason=reasons.NAME_TAKEN, message=message)


def unready(tenant: Tenant | None) -> Blocked | None:
    """Return why the Tenant of a home cannot be used yet; None if it can."""
    if tenant is None:
        return Blocked(reason=reasons.PROGRESSING, message="the Tenant is being made", passing=True)
    ready = conditions.find(tenant.status.conditions, reasons.READY)
    if conditions.is_true(tenant.status.conditions, reasons.READY):
        return None
    words = ready.message if ready is not None else "it has no status yet"
    return Blocked(reason=reasons.PROGRESSING, message=f"Tenant {tenant.metadata.name!r}: {words}", passing=True)
