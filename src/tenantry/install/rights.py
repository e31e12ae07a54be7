"""RBAC: the operator's rights, the least that its work needs, and the roles of owners and administrators. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from tenantry.api import marks, tenancyrules
from tenantry.api.conversion import CONVERTER
from tenantry.api.kinds import KINDS
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import KEEP, READ, Json, KindAccess
from tenantry.api.virtualcontrolplane import MIRROR

OPERATOR = "tenantry-operator"
ADMIN_ROLE = "tenantry-admin"
LABELS = {marks.MANAGED_BY: marks.MANAGER}
OWN = {kind.resource.plural: cast("KindAccess", vars(kind)["access"]) for kind in KINDS}
"""Plural to the rights on one of Tenantry's kinds."""

MIRROR_RIGHTS = "tenantry.dev/aggregate-to-mirror"
"""The label of ClusterRoles whose rights the mirrors of virtual control planes have, for kinds that are offered."""

_APPS = ["deployments", "replicasets", "statefulsets", "daemonsets"]
_WRITE = ("create", "update", "patch", "delete")


def allow(groups: list[str], resources: list[str], verbs: Sequence[str]) -> Json:
    """Return one rule of a role."""
    return {"apiGroups": groups, "resources": resources, "verbs": list(verbs)}


def _on_own_kinds(who: Literal["operator", "owners"]) -> list[Json]:
    """Return the rules of a role on Tenantry's kinds, one for each list of verbs."""
    by_verbs: dict[tuple[str, ...], list[str]] = {}
    for plural, access in OWN.items():
        verbs: tuple[str, ...] = getattr(access, who)
        by_verbs.setdefault(verbs, []).append(plural)
    return [allow([marks.GROUP], plurals, verbs) for verbs, plurals in by_verbs.items() if verbs]


def _scales() -> list[Json]:
    """Return the rule by which those who edit a kind with the subresource `scale` write that, too."""
    plurals = [kind.resource.plural for kind in KINDS if "scale" in vars(kind) and OWN[kind.resource.plural].owners]
    return [allow([marks.GROUP], [f"{plural}/scale" for plural in plurals], ["get", "patch", "update"])]


def cluster_role(name: str, **content: object) -> Json:
    """Return a ClusterRole."""
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": dict(LABELS)},
        **content,
    }


def given(role: str, subject: Json, *, called: str = "") -> Json:
    """Return the ClusterRoleBinding that grants a ClusterRole everywhere; by default it has the role's name."""
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": called or role, "labels": dict(LABELS)},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }


def operator_role() -> Json:
    """Return the operator's cluster-wide rights."""
    rules = [
        *_on_own_kinds("operator"),
        # Finalizers: if OwnerReferencesPermissionEnforcement is on, owner references that block a deletion need them.
        allow([marks.GROUP], [f"{kind}/{part}" for kind, access in OWN.items() for part in access.updates], ["update"]),
        # A tenant's core namespace is deleted by Kubernetes' garbage collector, child namespaces by the operator.
        allow([""], ["namespaces"], KEEP),
        allow([""], ["resourcequotas", "limitranges"], KEEP),
        allow(["networking.k8s.io"], ["ingresses"], READ),
        # What mirrors have written; they write with rights of their own.
        allow(["policy"], ["poddisruptionbudgets"], READ),
        allow([""], ["persistentvolumeclaims"], READ),
        allow(["snapshot.storage.k8s.io"], ["volumesnapshots"], READ),
        # Those of mirrored pods, and what controllers could not create; others are not kept.
        allow([""], ["events"], READ),
        allow(
            ["gateway.networking.k8s.io"],
            ["gateways", "httproutes", "grpcroutes", "tlsroutes", "tcproutes", "listenersets"],
            READ,
        ),
        allow(["gateway.networking.x-k8s.io"], ["xlistenersets"], READ),
        # A moved share is in force at once, instead of when Kubernetes' quota controller next syncs it.
        allow([""], ["resourcequotas/status"], ["patch"]),
        allow(["networking.k8s.io"], ["networkpolicies"], KEEP),
        allow(["policy.networking.k8s.io"], ["clusternetworkpolicies"], KEEP),
        allow([RBAC_GROUP], ["rolebindings"], KEEP),
        # The end of a suspension restores the subjects of every binding in the namespace, whatever role it binds.
        allow([RBAC_GROUP], ["roles", "clusterroles"], ["bind"]),
        # The kinds that owners may create are counted.
        {**allow([RBAC_GROUP], ["clusterroles"], READ), "resourceNames": [marks.OWNER_ROLE]},
        # Labels and taints make a node part of a slice, pods of others are evicted, withdrawn nodes are deleted.
        allow([""], ["nodes"], [*READ, "patch", "delete"]),
        allow([""], ["pods"], [*READ, "delete"]),
        allow([""], ["pods/eviction"], ["create"]),
        # Before a tenant is converted, the operator lists what cannot move.
        allow(["apps"], _APPS, READ),
        allow(["batch"], ["jobs", "cronjobs"], READ),
        allow([""], ["replicationcontrollers"], READ),
        # The certificates of contributed nodes.
        allow(["certificates.k8s.io"], ["certificatesigningrequests"], READ),
        allow(["certificates.k8s.io"], ["certificatesigningrequests/approval"], ["patch"]),
        {
            **allow(["certificates.k8s.io"], ["signers"], ["approve"]),
            "resourceNames": ["kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"],
        },
        # The certificate of a node must not name an address of the API server, and the view of a contributed node has
        # the Services that its pods reach. Virtual control planes have a Service each, for their own API server.
        allow([""], ["services"], KEEP),
        allow(["discovery.k8s.io"], ["endpointslices"], KEEP),
        # The gates of control planes never dial an address of a Service that is not theirs.
        allow(["networking.k8s.io"], ["servicecidrs"], READ),
        allow(["node.k8s.io"], ["runtimeclasses"], READ),
        # Virtual control planes show the classes that their users may name.
        allow(["storage.k8s.io"], ["storageclasses"], READ),
        allow(["networking.k8s.io"], ["ingressclasses"], READ),
        allow(["scheduling.k8s.io"], ["priorityclasses"], READ),
        allow(["snapshot.storage.k8s.io"], ["volumesnapshotclasses"], READ),
        # Whether the cluster has metrics: with them, virtual control planes have those of their own pods.
        allow(["apiregistration.k8s.io"], ["apiservices"], READ),
        allow([""], ["nodes/status"], ["patch"]),
        allow(["apiextensions.k8s.io"], ["customresourcedefinitions"], READ),
        allow(["flowcontrol.apiserver.k8s.io"], ["flowschemas", "prioritylevelconfigurations"], KEEP),
        allow(["events.k8s.io"], ["events"], ["create", "patch"]),
        # The installed objects; see `repairs`.
        allow(
            ["admissionregistration.k8s.io"],
            [f"{kind}admissionpolic{suffix}" for kind in ("validating", "mutating") for suffix in ("ies", "ybindings")],
            READ,
        ),
    ]
    return cluster_role(OPERATOR, rules=rules)


def people_roles() -> list[Json]:
    """Return the roles of owners, of Tenantry's administrators, and of the mirrors of virtual control planes."""
    owner = cluster_role(
        marks.OWNER_ROLE,
        aggregationRule={
            "clusterRoleSelectors": [
                {"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}},
                {"matchLabels": {"tenantry.dev/aggregate-to-owner": "true"}},
            ]
        },
    )
    own_namespace = cluster_role(
        "tenantry-aggregate-to-owner",
        rules=[
            allow([""], ["namespaces"], ["get"]),
            # `kubectl debug`, and new resources of a running pod: Kubernetes' own role for administrators of namespaces
            # has neither. The rules for pods and the quota apply to both.
            allow([""], ["pods/ephemeralcontainers", "pods/resize"], ["get", "patch", "update"]),
            *_on_own_kinds("owners"),
            *_scales(),
        ],
    )
    own_namespace["metadata"]["labels"]["tenantry.dev/aggregate-to-owner"] = "true"
    mirror = cluster_role(
        MIRROR,
        aggregationRule={"clusterRoleSelectors": [{"matchLabels": {MIRROR_RIGHTS: "true"}}]},
    )
    mirrored = cluster_role(
        "tenantry-aggregate-to-mirror",
        rules=[
            allow([""], ["pods", "configmaps", "secrets", "services", "persistentvolumeclaims"], _WRITE),
            allow(["networking.k8s.io"], ["ingresses", "networkpolicies"], _WRITE),
            allow(["policy"], ["poddisruptionbudgets"], _WRITE),
            allow(["gateway.networking.k8s.io"], ["httproutes", "grpcroutes", "tlsroutes", "tcproutes"], _WRITE),
            allow(["snapshot.storage.k8s.io"], ["volumesnapshots"], _WRITE),
            allow([""], ["pods/ephemeralcontainers", "pods/resize"], ["patch"]),
            allow([""], ["pods/log"], ["get"]),
            allow([""], ["pods/exec", "pods/attach", "pods/portforward"], ["get", "create"]),
            allow(["metrics.k8s.io"], ["pods"], ["get", "list"]),
        ],
    )
    mirrored["metadata"]["labels"][MIRROR_RIGHTS] = "true"
    # Out of a control plane, the mirror also has the rights of owners, which create workloads.
    converter = cluster_role(
        CONVERTER,
        rules=[
            allow([""], ["serviceaccounts", "configmaps", "secrets", "services", "pods"], [*READ, "patch", "delete"]),
            allow([""], ["persistentvolumeclaims", "replicationcontrollers"], [*READ, "patch", "delete"]),
            allow(["apps"], [*_APPS, "controllerrevisions"], [*READ, "delete"]),
            allow(["apps"], ["controllerrevisions"], ["create"]),
            allow(["batch"], ["jobs", "cronjobs"], [*READ, "delete"]),
            allow(["autoscaling"], ["horizontalpodautoscalers"], [*READ, "delete"]),
            allow(["networking.k8s.io"], ["ingresses", "networkpolicies"], [*READ, "patch"]),
            allow(["policy"], ["poddisruptionbudgets"], [*READ, "patch"]),
            allow([RBAC_GROUP], ["roles", "rolebindings"], [*READ, "delete"]),
        ],
    )
    everything = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
    everything += ["administer", "approve"]
    admin = cluster_role(ADMIN_ROLE, rules=[allow([marks.GROUP], ["*"], everything)])
    return [own_namespace, owner, mirrored, mirror, converter, admin]


def bindings(subject: Json) -> list[Json]:
    """Return the bindings of the operator's rights, and the right of all users to read the rules that tenants share.

    Args:
        subject: The operator, as RBAC names it: a ServiceAccount in a cluster, a User on a local one.
    """
    lease = {
        **allow(["coordination.k8s.io"], ["leases"], ["get", "update", "patch"]),
        "resourceNames": [OPERATOR],
    }
    rules = {**allow([marks.GROUP], ["tenancyrules"], ["get"]), "resourceNames": [tenancyrules.NAME]}
    system = marks.SYSTEM_NAMESPACE
    all_users = {"kind": "Group", "name": "system:authenticated", "apiGroup": RBAC_GROUP}
    return [
        # Two rules: RBAC cannot limit `create` to names, because the name is not known when a creation is authorized.
        *given_in(system, OPERATOR, subject, allow(["coordination.k8s.io"], ["leases"], ["create"]), lease),
        *given_in(system, "tenantry-shared-rules", all_users, rules),
        given(OPERATOR, subject),
    ]


def given_in(namespace: str, name: str, subject: Json, *rules: Json) -> list[Json]:
    """Return a Role in a namespace of Tenantry, and the RoleBinding that grants it."""
    metadata: Json = {"name": name, "namespace": namespace, "labels": LABELS}
    version = f"{RBAC_GROUP}/v1"
    role = {"apiVersion": version, "kind": "Role", "metadata": dict(metadata), "rules": list(rules)}
    reference = {"apiGroup": RBAC_GROUP, "kind": "Role", "name": name}
    binding = {"apiVersion": version, "kind": "RoleBinding", "metadata": dict(metadata), "roleRef": reference}
    return [role, {**binding, "subjects": [subject]}]


def flow_schemas(subject: Json) -> list[Json]:
    """Return the FlowSchemas of the operator.

    It is served beside Kubernetes' own controllers, ahead of pods' requests. Its lease is served beside theirs: it must
    not wait behind thousands of the operator's own writes, such as those of a suspension.
    """
    everything: Json = {
        "apiGroups": ["*"],
        "resources": ["*"],
        "verbs": ["*"],
        "clusterScope": True,
        "namespaces": ["*"],
    }
    leases: Json = {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "create", "update", "patch"],
        "namespaces": [marks.SYSTEM_NAMESPACE],
    }
    pages = [{"nonResourceURLs": ["*"], "verbs": ["*"]}]
    return [
        _flow_schema(
            subject, OPERATOR, "workload-high", 800, {"resourceRules": [everything], "nonResourceRules": pages}
        ),
        _flow_schema(subject, f"{OPERATOR}-lease", "leader-election", 200, {"resourceRules": [leases]}),
    ]


def _flow_schema(subject: Json, name: str, level: str, precedence: int, rules: Json) -> Json:
    kind = str(subject["kind"])
    about = (
        {"serviceAccount": {"name": subject["name"], "namespace": subject["namespace"]}}
        if kind == "ServiceAccount"
        else {"user": {"name": subject["name"]}}
    )
    return {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": name, "labels": dict(LABELS)},
        "spec": {
            "priorityLevelConfiguration": {"name": level},
            "matchingPrecedence": precedence,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{"subjects": [{"kind": kind, **about}], **rules}],
        },
    }
