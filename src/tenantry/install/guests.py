"""What another cluster may write here as a guest, beyond the rules of every tenant. Pure.

    tenantry-peers-subnamespaces   Workspaces of its own account, and nothing that would give others rights
    tenantry-peers-size            how large pods, ConfigMaps, Secrets and Services are
    tenantry-peers-endpoints       Services that lead to its own pods only
    tenantry-peers-leases          its Lease in `tenantry-peers`, without marks that keep it

None of its objects may have finalizers, which would stay when the peering ends.

A guest is a tenant whose owner is a program on a cluster that we do not know. The policies hold while the operator is
down. `install/peers.py` refuses every kind that a guest does not write at all, EndpointSlices among them.
"""

from __future__ import annotations

from tenantry.api.model import Json
from tenantry.api.peercluster import MOST_CONTAINERS, PEERS_NAMESPACE
from tenantry.api.subnamespace import Subnamespace
from tenantry.install.peers import BY_GUEST
from tenantry.install.policy import IN_TENANTS, Named, bound, rule, says, validating

SIZE = "tenantry-peers-size"
ENDPOINTS = "tenantry-peers-endpoints"
SUBNAMESPACES = "tenantry-peers-subnamespaces"
LEASES = "tenantry-peers-leases"

MOST_KIB = 128

_BY_GUEST: Named = {"by-another-cluster": BY_GUEST}
_MOST = MOST_KIB * 1024
_LISTS = ("containers", "initContainers", "ephemeralContainers")


_NO_NEW_FINALIZERS = says(
    "object.?metadata.finalizers.orValue([]).all(f, request.operation == 'UPDATE'"
    " && f in oldObject.?metadata.finalizers.orValue([]))",
    "metadata.finalizers must not have more than before: another cluster would keep the object, and its namespace,"
    " after the peering has ended",
)
"""A namespace with an object that has a finalizer never ends."""


def everything() -> list[Json]:
    """Return the policies and their bindings."""
    policies = (_size(), _endpoints(), _subnamespaces(), _leases())
    return [each for policy in policies for each in bound(policy)]


def _size() -> Json:
    """Return the policy on the size of what a guest writes: the API server would store 1.5 MiB for each object.

    CEL knows no size of a whole object. What a guest can make long is bounded field by field.
    """
    both = " + ".join(f"object.?{path}.orValue({{}}).map(k, size(k) + size({_at(path)})).sum()" for path in _TEXTS)
    containers = " + ".join(f"object.?spec.{each}.orValue([])" for each in _LISTS)
    # Strings and lists of strings in containers; those of other fields are names, which the API server bounds.
    long = (
        "c.?env.orValue([]).map(e, size(e.name) + size(e.?value.orValue(''))).sum()"
        " + c.?command.orValue([]).map(a, size(a)).sum() + c.?args.orValue([]).map(a, size(a)).sum()"
    )
    lists = ("spec.volumes", "spec.tolerations", "spec.hostAliases", "spec.topologySpreadConstraints")
    few = " && ".join(f"size(object.?{each}.orValue([])) <= {MOST_CONTAINERS}" for each in lists)
    is_pod = "request.resource.resource == 'pods'"
    validations = [
        says(
            f"{both} <= {_MOST}",
            f"data, annotations and labels must be at most {MOST_KIB} KiB together: another cluster writes no larger"
            " objects here",
        ),
        says(
            f"!({is_pod}) || size(variables.containers) <= {MOST_CONTAINERS}",
            f"spec must have at most {MOST_CONTAINERS} containers, of all kinds together",
        ),
        says(
            f"!({is_pod}) || {few}",
            f"spec.volumes, spec.tolerations, spec.hostAliases and spec.topologySpreadConstraints must have at most"
            f" {MOST_CONTAINERS} items each",
        ),
        says(
            f"!({is_pod}) || size(variables.containers) > {MOST_CONTAINERS}"
            f" || variables.containers.map(c, {long}).sum() <= {_MOST}",
            f"spec.containers: env, command and args of all of them must be at most {MOST_KIB} KiB together",
        ),
        _NO_NEW_FINALIZERS,
    ]
    about = rule("", ["pods", "pods/ephemeralcontainers", "configmaps", "secrets", "services"])
    return validating(
        SIZE, [about], validations, conditions=_BY_GUEST, where=IN_TENANTS, variables={"containers": containers}
    )


_TEXTS = ("metadata.annotations", "metadata.labels", "data", "binaryData")


def _at(path: str) -> str:
    return f"object.{path}[k]"


def _endpoints() -> Json:
    """Return the policy on Services: traffic of the peer's pods goes to no address that a guest chooses.

    The endpoint controller of the peer fills EndpointSlices with the pods that a selector finds in the namespace. A
    guest writes none itself, so that it names neither the addresses of other tenants' pods nor those of nodes.
    """
    validations = [
        says(
            "object.?spec.type.orValue('ClusterIP') == 'ClusterIP'",
            "spec.type must be ClusterIP: another cluster opens no ports of nodes, and no load balancers",
        ),
        says(
            "size(object.?spec.externalIPs.orValue([])) == 0 && object.?spec.externalName.orValue('') == ''"
            " && object.?spec.loadBalancerIP.orValue('') == '' && object.?spec.loadBalancerClass.orValue('') == ''",
            "spec must not have externalIPs, externalName, loadBalancerIP nor loadBalancerClass: traffic would go to"
            " addresses that another cluster chooses",
        ),
    ]
    return validating(ENDPOINTS, [rule("", ["services"])], validations, conditions=_BY_GUEST, where=IN_TENANTS)


def _subnamespaces() -> Json:
    """Return the policy on Subnamespaces: their owners have more rights than a guest has itself.

    An owner writes RoleBindings, gets tokens that stay, and reserves nodes. A ServiceAccount of the guest's own
    namespace as an owner would be such a token in a pod.
    """
    itself = (
        f"o.kind == 'ServiceAccount' && o.?namespace.orValue('') == '{PEERS_NAMESPACE}'"
        f" && request.userInfo.username == 'system:serviceaccount:{PEERS_NAMESPACE}:' + o.name"
    )
    inherited = ("roles", "roleBindings", "networkPolicies", "limitRanges", "secrets", "configMaps", "serviceAccounts")
    none = " && ".join(f"object.spec.?inheritance.{each}.orValue('None') == 'None'" for each in inherited)
    validations = [
        says(
            f"object.spec.?owners.orValue([]).all(o, {itself})",
            "spec.owners must name only the account of the other cluster itself: owners have more rights",
        ),
        says("object.spec.mode == 'Workspace'", "spec.mode must be Workspace"),
        says(
            f"{none} && size(object.spec.?inheritance.others.orValue([])) == 0",
            "spec.inheritance must be None for every kind: another cluster writes what it needs itself",
        ),
        says(
            "object.spec.?isolation.controlPlane.orValue('Shared') == 'Shared'"
            " && object.spec.?sliceClaimName.orValue('') == '' && !has(object.spec.adopt)",
            "spec must not have adopt, sliceClaimName nor isolation.controlPlane: Virtual",
        ),
        _NO_NEW_FINALIZERS,
    ]
    resource = Subnamespace.resource
    about = [rule(resource.group, [resource.plural])]
    return validating(SUBNAMESPACES, about, validations, conditions=_BY_GUEST, where=IN_TENANTS)


def _leases() -> Json:
    """Return the policy on the Lease of a guest, which is where no tenant's policies hold."""
    same = " && ".join(
        f"object.?metadata.{field} == oldObject.?metadata.{field}" for field in ("labels", "ownerReferences")
    )
    validations = [
        _NO_NEW_FINALIZERS,
        says(same, "metadata.labels and metadata.ownerReferences must not be changed by another cluster"),
    ]
    about = [rule("coordination.k8s.io", ["leases"], "UPDATE")]
    where: Json = {"matchLabels": {"kubernetes.io/metadata.name": PEERS_NAMESPACE}}
    return validating(LEASES, about, validations, conditions=_BY_GUEST, where=where)
