"""What a VirtualControlPlane needs: pure.

VirtualControlPlane ─► HostedPlane   what the process is started with
─► Profile       how its pods are mirrored
─► host objects  ServiceAccount and RoleBinding of the mirror; see also `apiservice` and `kubeconfigplace`
─► objects inside  the binding of its users
"""

from __future__ import annotations

from fractions import Fraction

from tenantry.api import marks
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import Json, Resource
from tenantry.api.ownnamespaces import HOSTED_PREFIX
from tenantry.api.planecredentials import KUBECONFIGS_NAMESPACE
from tenantry.api.planenetwork import DEFAULT_DOMAIN
from tenantry.api.virtualcontrolplane import (
    MIRROR,
    MIRRORS_NAMESPACE,
    OWNERS_INSIDE,
    PLANE,
    PREFIX,
    PROCESS_FINALIZER,
    PlaneNodes,
    VirtualControlPlane,
)
from tenantry.controllers.quota.objects import process_charge
from tenantry.controllers.virtualcontrolplane import metrics, rotation, serveroptions
from tenantry.controllers.virtualcontrolplane.admission import RULES
from tenantry.controllers.virtualcontrolplane.servicenetwork import FALLBACK
from tenantry.engine.observed import Observed
from tenantry.hosting.plane import HostedLimits, HostedPlane, PlaneOwner
from tenantry.hosting.stores import HostedStore
from tenantry.mirror.profile import Profile
from tenantry.world import quantity

FINALIZER = PROCESS_FINALIZER

OWNERS = OWNERS_INSIDE

SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
SECRETS = Resource("", "v1", "secrets", "Secret")
ROLE_BINDINGS = Resource(RBAC_GROUP, "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLE_BINDINGS = Resource(RBAC_GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
_LABELS = {marks.MANAGED_BY: marks.MANAGER}


def plane_of(
    found: VirtualControlPlane, address: str, store: HostedStore | None = None, service_range: str = FALLBACK
) -> HostedPlane:
    """Return what the process of a VirtualControlPlane is started with.

    Args:
        found: The VirtualControlPlane.
        address: The clusterIP by which its pods reach it.
        store: Where its objects are; only its process needs to know.
        service_range: The addresses of its Services; only its process needs to know.
    """
    meta = found.metadata
    own = f"https://{meta.uid}.{PREFIX}"
    has_nodes = has_own_nodes(found)
    issuer = found.spec.tokens.issuer or own
    return HostedPlane(
        uid=meta.uid,
        name=f"{meta.namespace}.{meta.name}",
        issuer=issuer,
        # Tokens from before the field was set.
        former_issuers=(own,) if issuer != own else (),
        owner=f"tenantry:owner:{meta.uid}",
        names=(address,),
        service_range=service_range,
        pod_range=found.spec.network.pod_range,
        host=found.spec.endpoint.host,
        port=found.spec.endpoint.port,
        domain=found.spec.network.dns_domain or DEFAULT_DOMAIN,
        owners=tuple(PlaneOwner(kind=each.kind.value, name=each.name) for each in found.spec.owners),
        # Of the mirror.
        admission=() if has_nodes else RULES,
        forwarded=None if has_nodes else metrics.GROUP,
        limits=limits_of(found),
        replicas=replicas_of(found),
        store=store or HostedStore(),
        credentials=rotation.wanted(found),
        options=serveroptions.of(found, (issuer, own)),
        has_nodes=has_nodes,
        guards=found.spec.guards if has_nodes else (),
    )


def has_own_nodes(found: VirtualControlPlane) -> bool:
    """Return whether nodes join a control plane, so that nothing is mirrored."""
    return found.spec.nodes is PlaneNodes.OWN


def limits_of(found: VirtualControlPlane) -> HostedLimits:
    """Return what each process of a VirtualControlPlane may take: its part of what is charged, of the quota's keys."""
    charged, wanted, many = process_charge(found), found.spec.resources, replicas_of(found)

    def part(key: str, each: str | int) -> Fraction:
        return Fraction(charged[key], 1000 * many) if key in charged else quantity.parse(each)

    return HostedLimits(
        memory_bytes=int(part("limits.memory", wanted.limits.memory)),
        cpu_millis=int(part("requests.cpu", wanted.requests.cpu) * 1000),
    )


def replicas_of(found: VirtualControlPlane) -> int:
    """Return how many processes a VirtualControlPlane may have: fewer than wanted while only those are charged."""
    charged, wanted = process_charge(found).get("requests.memory"), found.spec
    if wanted.replicas == 1 or charged is None:
        return wanted.replicas
    covered = Fraction(charged, 1000) // quantity.parse(wanted.resources.requests.memory)
    return max(1, min(wanted.replicas, int(covered)))


def profile_of(found: VirtualControlPlane, address: str) -> Profile:
    """Return how the pods of a VirtualControlPlane are mirrored.

    Args:
        found: The VirtualControlPlane.
        address: As for `plane_of`.
    """
    meta = found.metadata
    return Profile(
        owner_uid=meta.uid,
        namespace=meta.namespace,
        prefix=PREFIX,
        owner=owner_of(found),
        # Without it, containers would get the address of the host's API server.
        api_host=address,
        api_port="443",
    )


def owner_of(found: VirtualControlPlane) -> Json:
    """Return the owner reference of all host objects of a VirtualControlPlane."""
    # A controller, so that `kubectl drain` takes mirrored pods for pods that come back.
    return {
        "apiVersion": found.resource.api_version,
        "kind": found.resource.kind,
        "name": found.metadata.name,
        "uid": found.metadata.uid,
        "controller": True,
    }


def labels(found: VirtualControlPlane) -> dict[str, str]:
    """Return the labels of what the operator itself keeps on the host for a VirtualControlPlane."""
    return {**_LABELS, PLANE: found.metadata.name}


def mirror_objects(
    found: VirtualControlPlane, namespace: Observed, *, is_open: bool
) -> tuple[tuple[Resource, Json], ...]:
    """Return the identity that writes mirrored objects, and its rights in one namespace; nothing without a mirror.

    The ServiceAccount stays when the VirtualControlPlane is gone, because others of the namespace use it: the garbage
    collector deletes it with the namespace that it is for.

    Args:
        found: The VirtualControlPlane.
        namespace: Its namespace.
        is_open: Whether the tenant is not suspended: a suspension takes the subjects of all bindings, and gives them
            back.
    """
    meta = found.metadata
    if has_own_nodes(found):
        return ()
    account: Json = {
        "metadata": {
            "name": meta.namespace,
            "namespace": MIRRORS_NAMESPACE,
            "labels": _LABELS,
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Namespace", "name": namespace.name, "uid": namespace.uid}
            ],
        },
        "automountServiceAccountToken": False,
    }
    binding: Json = {
        "metadata": {
            "name": f"{MIRROR}-{meta.name}",
            "namespace": meta.namespace,
            "labels": labels(found),
            "ownerReferences": [owner_of(found)],
        },
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": MIRROR},
        "subjects": [{"kind": "ServiceAccount", "name": meta.namespace, "namespace": MIRRORS_NAMESPACE}],
    }
    return ((SERVICE_ACCOUNTS, account), (ROLE_BINDINGS, binding)) if is_open else ((SERVICE_ACCOUNTS, account),)


def owners_binding(plane: HostedPlane, *, is_open: bool) -> Json:
    """Return the binding inside by which the users of a control plane are its administrators.

    Args:
        plane: The control plane.
        is_open: Whether the users have access; a suspended tenant has none.
    """
    known = (("User", plane.owner), *((each.kind, each.name) for each in plane.owners))
    subjects = [{"apiGroup": RBAC_GROUP, "kind": kind, "name": name} for kind, name in known]
    return {
        "metadata": {"name": OWNERS},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": subjects if is_open else [],
    }


def is_ours(seen: Json, wanted: Json, uid: str) -> bool:
    """Return whether an object that exists may be brought to what it should be.

    Args:
        seen: The object.
        wanted: What it should be.
        uid: The uid of the VirtualControlPlane.
    """
    # The ServiceAccount, which several share, is in a namespace of Tenantry; so are kubeconfigs and authorities.
    place: str = wanted["metadata"]["namespace"]
    if place in (MIRRORS_NAMESPACE, KUBECONFIGS_NAMESPACE) or place.startswith(HOSTED_PREFIX):
        return True
    return any(each.get("uid") == uid for each in seen["metadata"].get("ownerReferences") or ())


def is_former_account(seen: Json) -> bool:
    """Return whether a ServiceAccount `tenantry-mirror` in a tenant's namespace is an earlier version's.

    Args:
        seen: The ServiceAccount.
    """
    meta: Json = seen["metadata"]
    is_ours = meta.get("labels", {}).get(marks.MANAGED_BY) == marks.MANAGER
    return is_ours and marks.MADE_BY not in meta.get("annotations", {})
