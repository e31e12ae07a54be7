"""Checks of the API: objects of others and of the cluster, and the ways to get another user's rights. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenantry.api import marks
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.model import Json
from tenantry.api.wording import shortened
from tenantry.audit import kinds
from tenantry.audit.attempts import create, create_and_delete, delete, get, list_, may, review
from tenantry.audit.check import (
    Attempt,
    AttemptResponse,
    AttemptsOf,
    AuditCheck,
    NotApplicable,
    Severity,
    WhenNotFound,
    WithoutTenantry,
)
from tenantry.audit.checks.table import check
from tenantry.audit.context import GUEST, AuditContext, OtherNamespace
from tenantry.policy.request import parts

ADMISSION_KINDS = (
    kinds.VALIDATING_WEBHOOKS,
    kinds.MUTATING_WEBHOOKS,
    kinds.VALIDATING_POLICIES,
    kinds.VALIDATING_BINDINGS,
    kinds.MUTATING_POLICIES,
    kinds.MUTATING_BINDINGS,
)
CLUSTER_KINDS = (
    kinds.NODES,
    kinds.VOLUMES,
    kinds.CLUSTER_ROLES,
    kinds.CLUSTER_ROLE_BINDINGS,
    kinds.CRDS,
    kinds.API_SERVICES,
    kinds.SIGNING_REQUESTS,
    kinds.FLOW_SCHEMAS,
    *ADMISSION_KINDS,
)
NAMESPACED_KINDS = (
    kinds.PODS,
    kinds.SERVICES,
    kinds.CONFIG_MAPS,
    kinds.EVENTS,
    kinds.DEPLOYMENTS,
    kinds.INGRESSES,
    kinds.CLAIMS,
    kinds.SERVICE_ACCOUNTS,
    kinds.ROLES,
    RoleBinding.resource,
)
CLASSES = (kinds.PRIORITY_CLASSES, kinds.RUNTIME_CLASSES, kinds.INGRESS_CLASSES, kinds.STORAGE_CLASSES)
EVERYTHING: Json = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
CLUSTER_ADMIN: Json = {"apiGroup": kinds.RBAC, "kind": "ClusterRole", "name": "cluster-admin"}
KUBERNETES_LEVELS = frozenset(
    {"exempt", "system", "leader-election", "node-high", "workload-high", "workload-low", "global-default"}
)
FOR_ALL = frozenset({"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews", "tenantrequests"})
"""Kinds on which every authenticated user has rights: Kubernetes' default roles, and requests for a tenant."""


FOR_ALL_IN_TENANTRY = frozenset({"tenancyrules"})
"""Kinds that every user may read in Tenantry's namespace."""


def in_each_other(make: Callable[[AuditContext, OtherNamespace], list[Attempt]]) -> AttemptsOf:
    """Return the attempts made in each namespace of others."""
    return lambda context: [attempt for other in context.others for attempt in make(context, other)]


def _secrets(_: AuditContext, other: OtherNamespace) -> list[Attempt]:
    return [list_(kinds.SECRETS, other.name), get(f"/api/v1/namespaces/{other.name}/secrets/tenantry-audit")]


def _writes(context: AuditContext, other: OtherNamespace) -> list[Attempt]:
    return [
        create(kinds.CONFIG_MAPS, named(context), other.name),
        create(RoleBinding.resource, _binding(context), other.name),
        create(kinds.LEASES, named(context), other.name),
        delete(kinds.SECRETS, context.name, other.name),
    ]


def _inside(context: AuditContext, other: OtherNamespace) -> list[Attempt]:
    pod = f"/api/v1/namespaces/{other.name}/pods/{context.name}"
    service = f"/api/v1/namespaces/{other.name}/services/{context.name}"
    return [
        get(f"{pod}/log"),
        get(f"{pod}/exec?command=true&stdout=true"),
        get(f"{pod}/attach?stdout=true"),
        get(f"{pod}/portforward?ports=80"),
        get(f"{pod}/proxy/"),
        get(f"{service}/proxy/"),
        # POST is a right of its own for these. It would open a shell, so only the right is asked.
        *(may("create", "pods", namespace=other.name, subresource=each) for each in ("exec", "attach", "portforward")),
        may("patch", "pods", namespace=other.name, subresource="ephemeralcontainers"),
    ]


def _rights(_: AuditContext, other: OtherNamespace) -> list[Attempt]:
    known = FOR_ALL | FOR_ALL_IN_TENANTRY if other.name == marks.SYSTEM_NAMESPACE else FOR_ALL
    judge: Callable[[AttemptResponse], str] = lambda answer: surplus(answer, known, other.own_secrets)  # noqa: E731 - with its type
    what = f"list one's own rights in {other.name!r}"
    return [review("SelfSubjectRulesReview", {"namespace": other.name}, what, judge)]


def surplus(answer: AttemptResponse, known: frozenset[str] = FOR_ALL, own_secrets: frozenset[str] = frozenset()) -> str:
    """Return the rights in a SelfSubjectRulesReview that not every user has.

    Args:
        answer: The review.
        known: The kinds on which every user has rights.
        own_secrets: The names of Secrets that the user may get, and do nothing else with.
    """
    found = [
        f"{'/'.join(rule.get('verbs', []))} {'/'.join(rule.get('resources', []))}"
        for rule in parts(answer.body, "status", "resourceRules")
        if not set(rule.get("resources", [])) <= known and not _gets_only(rule, own_secrets)
    ]
    return f"may {shortened(found, in_order=True)}" if found else ""


def _gets_only(rule: Json, own_secrets: frozenset[str]) -> bool:
    """Return whether a rule is the right to get Secrets of these names."""
    names = set(rule.get("resourceNames") or ())
    is_get = (rule.get("verbs"), rule.get("resources")) == (["get"], ["secrets"])
    return is_get and bool(names) and names <= own_secrets


def named(context: AuditContext, **metadata: object) -> Json:
    """Return the metadata of an object that an attempt creates."""
    return {"metadata": {"name": context.name, **metadata}}


def _binding(context: AuditContext, role: Json = CLUSTER_ADMIN) -> Json:
    """Return a binding of the tenant's user to a role."""
    # A dry run grants nothing, so the binding may name the tenant's own user.
    user = {"kind": "User", "apiGroup": kinds.RBAC, "name": context.user}
    return {**named(context), "roleRef": role, "subjects": [user]}


def _cluster_roles(context: AuditContext) -> list[Attempt]:
    return [
        create(kinds.CLUSTER_ROLES, {**named(context), "rules": [EVERYTHING]}),
        create(kinds.CLUSTER_ROLE_BINDINGS, _binding(context)),
        delete(kinds.CLUSTER_ROLE_BINDINGS, context.name),
    ]


def _escalation(context: AuditContext) -> list[Attempt]:
    return [
        create(kinds.ROLES, {**named(context), "rules": [EVERYTHING]}, context.namespace, what="with every right"),
        create(RoleBinding.resource, _binding(context), context.namespace, what="to cluster-admin"),
        # RBAC lets a user grant rights that it does not have only with these two verbs.
        may("escalate", "roles", group=kinds.RBAC, namespace=context.namespace),
        may("bind", "clusterroles", group=kinds.RBAC),
    ]


def _impersonation(context: AuditContext) -> list[Attempt]:
    found = [may("impersonate", resource) for resource in ("users", "groups", "serviceaccounts")]
    found.append(may("impersonate", "userextras", group="authentication.k8s.io", subresource="scopes"))
    return [*found, *(may("impersonate", "serviceaccounts", namespace=other.name) for other in context.others)]


def _certificates(_: AuditContext) -> list[Attempt]:
    requests, signers = kinds.SIGNING_REQUESTS.plural, "signers"
    return [
        may("create", requests, group=kinds.CERTIFICATES),
        may("update", requests, group=kinds.CERTIFICATES, subresource="approval"),
        may("update", requests, group=kinds.CERTIFICATES, subresource="status"),
        may("approve", signers, group=kinds.CERTIFICATES),
        may("sign", signers, group=kinds.CERTIFICATES),
    ]


def _internals(_: AuditContext) -> list[Attempt]:
    paths = ("/metrics", "/logs/", "/debug/pprof/", "/debug/api_priority_and_fairness/dump_requests", "/configz")
    metrics = "/apis/metrics.k8s.io/v1beta1/nodes"
    # Not every API server serves all of these paths.
    return [get(path, missing=WhenNotFound.SKIPPED) for path in (*paths, metrics)]


def _level(context: AuditContext) -> list[Attempt] | NotApplicable:
    levels = context.levels
    if levels is None:
        return NotApplicable("the administrator may not read PriorityLevelConfigurations")

    def judge(answer: AttemptResponse) -> str:
        # The API server names the priority level of each request in this header (API Priority and Fairness).
        level = levels.get(answer.headers.get("x-kubernetes-pf-prioritylevel-uid", ""), "")
        is_shared = level in KUBERNETES_LEVELS
        return f"Kubernetes' level {level!r} serves the requests, beside the cluster's own" if is_shared else ""

    path = f"/api/v1/namespaces/{context.namespace}/configmaps?limit=1"
    return [get(path, "read, and see which priority level serves the request", judge=judge)]


def _self_service(context: AuditContext) -> list[Attempt] | NotApplicable:
    if context.is_guest:
        return NotApplicable(GUEST)
    role = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    return [
        create(RoleBinding.resource, _binding(context, {**CLUSTER_ADMIN, "name": "view"}), context.namespace),
        create(kinds.ROLES, {**named(context), "rules": [role]}, context.namespace),
    ]


CHECKS: Sequence[AuditCheck] = (
    check(
        "API-000",
        "Is not an administrator",
        Severity.CRITICAL,
        "Asks whether the user may do everything. If so, no other check runs.",
        "The rules for tenants apply to the tenant at all.",
        lambda _: [may("*", "*", group="*")],
    ),
    check(
        "API-001",
        "Cannot read other tenants' Secrets",
        Severity.CRITICAL,
        "Lists and reads Secrets in namespaces of others.",
        "The tenant does not get the credentials of others.",
        in_each_other(_secrets),
        benchmark="block_other_tenant_resources",
    ),
    check(
        "API-002",
        "Cannot list other tenants' objects",
        Severity.HIGH,
        "Lists pods, services, events, roles and more in namespaces of others.",
        "The tenant does not see what others run.",
        in_each_other(lambda _, other: [list_(resource, other.name) for resource in NAMESPACED_KINDS]),
        benchmark="block_other_tenant_resources",
    ),
    check(
        "API-003",
        "Cannot list objects of all namespaces",
        Severity.HIGH,
        "Lists Secrets, pods, events and more of the whole cluster.",
        "Lists return objects of the tenant's own namespaces only.",
        lambda _: [list_(resource) for resource in (kinds.SECRETS, *NAMESPACED_KINDS)],
        benchmark="block_other_tenant_resources",
    ),
    check(
        "API-004",
        "Cannot write in namespaces of others",
        Severity.CRITICAL,
        "Creates ConfigMaps, Leases and RoleBindings there, and deletes Secrets (dry runs).",
        "The tenant does not change objects of others.",
        in_each_other(_writes),
        benchmark="block_other_tenant_resources",
    ),
    check(
        "API-005",
        "Cannot get into pods of others",
        Severity.CRITICAL,
        "Requests logs, exec, attach, port-forward and proxy of pods and Services that do not exist in namespaces of"
        " others.",
        "The API server does not let the tenant into containers of others.",
        in_each_other(_inside),
    ),
    check(
        "API-006",
        "Has no rights in namespaces of others",
        Severity.HIGH,
        "Asks the API server for the list of the user's rights in each of them.",
        "No rule of any role, for any kind, applies there.",
        in_each_other(_rights),
        benchmark="block_multitenant_resources",
    ),
    check(
        "API-007",
        "Cannot read cluster-scoped objects",
        Severity.MEDIUM,
        "Lists nodes, PersistentVolumes, ClusterRoles, CRDs, webhooks, policies and more, and asks whether it may get"
        " or watch them.",
        "The tenant does not see the cluster's configuration, nor other tenants' names in it.",
        # A role may allow one of the three verbs alone, and a watch sends every object.
        lambda _: [
            attempt
            for resource in CLUSTER_KINDS
            for attempt in (
                list_(resource),
                *(may(verb, resource.plural, group=resource.group) for verb in ("get", "watch")),
            )
        ],
        benchmark="block_access_to_cluster_resources",
    ),
    check(
        "API-008",
        "Cannot list namespaces",
        Severity.MEDIUM,
        "Lists all namespaces.",
        "The tenant does not learn the names of other tenants.",
        lambda _: [list_(Namespace.resource)],
        benchmark="block_access_to_cluster_resources",
    ),
    check(
        "API-009",
        "Cannot create or delete namespaces",
        Severity.HIGH,
        "Creates a namespace, and deletes one (dry runs).",
        "The tenant has no namespace outside its tree, its quota and its rules.",
        lambda context: create_and_delete(context, Namespace.resource),
        benchmark="block_access_to_cluster_resources",
    ),
    check(
        "API-010",
        "Cannot grant rights in the whole cluster",
        Severity.CRITICAL,
        "Creates a ClusterRole with every right and a ClusterRoleBinding to cluster-admin (dry runs).",
        "The tenant does not make itself an administrator.",
        _cluster_roles,
        benchmark="block_access_to_cluster_resources",
    ),
    check(
        "API-011",
        "Cannot grant itself more rights in its namespace",
        Severity.CRITICAL,
        "Creates a Role with every right, binds cluster-admin (dry runs), and asks for the verbs escalate and bind.",
        "Users grant only rights that they have.",
        _escalation,
        benchmark="block_role_privilege_escalation",
    ),
    check(
        "API-012",
        "Cannot impersonate other users",
        Severity.CRITICAL,
        "Asks whether the user may impersonate users, groups and service accounts.",
        "The tenant does not act as another user.",
        _impersonation,
    ),
    check(
        "API-013",
        "Cannot get tokens of other service accounts",
        Severity.CRITICAL,
        "Asks whether the user may create tokens in namespaces of others.",
        "The tenant does not act as a controller of the cluster.",
        in_each_other(lambda _, other: [may("create", "serviceaccounts", namespace=other.name, subresource="token")]),
    ),
    check(
        "API-014",
        "Cannot request, approve or sign certificates",
        Severity.CRITICAL,
        "Asks whether the user may create, approve or sign CertificateSigningRequests.",
        "The tenant does not get a certificate for another name.",
        _certificates,
    ),
    check(
        "API-015",
        "Cannot change webhooks and admission policies",
        Severity.CRITICAL,
        "Creates and deletes each kind of webhook and admission policy (dry runs).",
        "The tenant neither reads requests of others nor removes the policies that apply to it.",
        lambda context: create_and_delete(context, *ADMISSION_KINDS),
    ),
    check(
        "API-016",
        "Cannot change the kinds of the API",
        Severity.HIGH,
        "Creates and deletes CustomResourceDefinitions and APIServices (dry runs).",
        "The tenant does not change the API that others use.",
        lambda context: create_and_delete(context, kinds.CRDS, kinds.API_SERVICES),
    ),
    check(
        "API-017",
        "Cannot change classes of the cluster",
        Severity.HIGH,
        "Creates and deletes PriorityClasses, RuntimeClasses, IngressClasses and StorageClasses (dry runs).",
        "Only administrators define the classes that all tenants use.",
        lambda context: create_and_delete(context, *CLASSES),
    ),
    check(
        "API-018",
        "Cannot change the queues of the API server",
        Severity.HIGH,
        "Creates and deletes FlowSchemas and PriorityLevelConfigurations (dry runs).",
        "The tenant does not move its requests ahead of others.",
        lambda context: create_and_delete(context, kinds.FLOW_SCHEMAS, kinds.LEVELS),
    ),
    check(
        "API-019",
        "Has only a fair share of the API server",
        Severity.MEDIUM,
        "Sends a read, and checks which priority level serves it.",
        "A flood of the tenant's requests does not delay the cluster's own.",
        _level,
        fix="Install Tenantry's FlowSchemas (`tenantry install`), and name the tenant in no FlowSchema before them.",
        alone=WithoutTenantry.DEPENDS,
    ),
    check(
        "API-020",
        "Cannot read internals of the API server",
        Severity.MEDIUM,
        "Reads /metrics, /logs, /debug and the metrics of nodes.",
        "Metrics do not show names and loads of others.",
        _internals,
    ),
    check(
        "API-021",
        "Can grant rights to its own users",
        Severity.LOW,
        "Creates a Role and a RoleBinding to view in its own namespace (dry runs); this must be allowed.",
        "The tenant manages its own users without an administrator.",
        _self_service,
        fix=f"Bind an owner to the ClusterRole {marks.OWNER_ROLE!r}, or admin, in the namespace.",
        allowed=True,
        alone=WithoutTenantry.DEPENDS,
        benchmark="create_role_bindings",
    ),
)
