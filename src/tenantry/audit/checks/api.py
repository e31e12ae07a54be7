"""Checks of the API: what is others' or the cluster's, and the ways to become somebody else. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tenantry.api import marks
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.wording import shortened
from tenantry.audit import kinds
from tenantry.audit.attempts import create, delete, get, list_, may, review, rows
from tenantry.audit.check import Alone, Answer, Area, Attempt, Attempts, Check, Missing, Nothing, Severity
from tenantry.audit.place import Foreign, Place

Json = dict[str, Any]

ADMISSION_KINDS = (
    kinds.VALIDATING_WEBHOOKS,
    kinds.MUTATING_WEBHOOKS,
    kinds.VALIDATING_POLICIES,
    kinds.VALIDATING_BINDINGS,
    kinds.MUTATING_POLICIES,
    kinds.MUTATING_BINDINGS,
)
ADMINISTRATOR = "000"
"""The number of the check without which no other is made."""

READ_CLUSTER_WIDE = (
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
READ_OF_OTHERS = (
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
EVERYTHING: Json = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
MASTERS: Json = {"apiGroup": kinds.RBAC, "kind": "ClusterRole", "name": "cluster-admin"}
FOR_ALL = frozenset({"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews", "tenantrequests"})
"""What everybody who is authenticated may use: Kubernetes' default roles, and asking for a tenant."""


FOR_ALL_IN_TENANTRY = frozenset({"tenancyrules"})
"""What everybody may read in Tenantry's namespace."""


def of_others(make: Any) -> Attempts:  # noqa: ANN401 - a function of a namespace to attempts
    """Return the attempts made in each namespace of others."""

    def attempts(place: Place) -> list[Attempt]:
        return [attempt for other in place.others for attempt in make(place, other)]

    return attempts


def _secrets(_: Place, other: Foreign) -> list[Attempt]:
    return [list_(kinds.SECRETS, other.name), get(f"/api/v1/namespaces/{other.name}/secrets/tenantry-audit")]


def _reads(_: Place, other: Foreign) -> list[Attempt]:
    return [list_(resource, other.name) for resource in READ_OF_OTHERS]


def _writes(place: Place, other: Foreign) -> list[Attempt]:
    binding = {**named(place), "roleRef": MASTERS, "subjects": [user(place)]}
    return [
        create(kinds.CONFIG_MAPS, named(place), other.name),
        create(RoleBinding.resource, binding, other.name),
        create(kinds.LEASES, named(place), other.name),
        delete(kinds.SECRETS, place.name, other.name),
    ]


def _inside(place: Place, other: Foreign) -> list[Attempt]:
    pod = f"/api/v1/namespaces/{other.name}/pods/{place.name}"
    service = f"/api/v1/namespaces/{other.name}/services/{place.name}"
    return [
        get(f"{pod}/log"),
        get(f"{pod}/exec?command=true&stdout=true"),
        get(f"{pod}/attach?stdout=true"),
        get(f"{pod}/portforward?ports=80"),
        get(f"{pod}/proxy/"),
        get(f"{service}/proxy/"),
        # Clients ask for these with POST, too, which makes a right of its own of it; trying would open a shell.
        *(may("create", "pods", namespace=other.name, subresource=each) for each in ("exec", "attach", "portforward")),
        may("patch", "pods", namespace=other.name, subresource="ephemeralcontainers"),
    ]


def _tokens(_: Place, other: Foreign) -> list[Attempt]:
    return [may("create", "serviceaccounts", namespace=other.name, subresource="token")]


def _rights(_: Place, other: Foreign) -> list[Attempt]:
    told = f"list one's own rights in {other.name!r}"
    known = FOR_ALL | FOR_ALL_IN_TENANTRY if other.name == marks.SYSTEM_NAMESPACE else FOR_ALL
    judge: Callable[[Answer], str] = lambda answer: surplus(answer, known)  # noqa: E731 - with its type
    return [review("SelfSubjectRulesReview", {"namespace": other.name}, told, judge)]


def surplus(answer: Answer, known: frozenset[str] = FOR_ALL) -> str:
    """Return the rights, out of a SelfSubjectRulesReview, that not everybody has.

    Args:
        answer: The review.
        known: The kinds on which everybody has some.
    """
    found = [
        f"{'/'.join(rule.get('verbs', []))} {'/'.join(rule.get('resources', []))}"
        for rule in rows(answer.body, "status", "resourceRules")
        if not set(rule.get("resources", [])) <= known
    ]
    return f"may {shortened(found)}" if found else ""


def named(place: Place, **metadata: object) -> Json:
    """Return the metadata of an object that is tried."""
    return {"metadata": {"name": place.name, **metadata}}


def user(place: Place) -> Json:
    """Return the tenant's user as a binding names it."""
    return {"kind": "User", "apiGroup": kinds.RBAC, "name": place.user}


def _cluster_roles(place: Place) -> list[Attempt]:
    return [
        create(kinds.CLUSTER_ROLES, {**named(place), "rules": [EVERYTHING]}),
        create(kinds.CLUSTER_ROLE_BINDINGS, {**named(place), "roleRef": MASTERS, "subjects": [user(place)]}),
        delete(kinds.CLUSTER_ROLE_BINDINGS, place.name),
    ]


def _escalation(place: Place) -> list[Attempt]:
    binding = {**named(place), "roleRef": MASTERS, "subjects": [user(place)]}
    return [
        create(kinds.ROLES, {**named(place), "rules": [EVERYTHING]}, place.namespace, what="with every right"),
        create(RoleBinding.resource, binding, place.namespace, what="to cluster-admin"),
        may("escalate", "roles", group=kinds.RBAC, namespace=place.namespace),
        may("bind", "clusterroles", group=kinds.RBAC),
    ]


def _impersonation(place: Place) -> list[Attempt]:
    found = [may("impersonate", resource) for resource in ("users", "groups", "serviceaccounts")]
    found.append(may("impersonate", "userextras", group="authentication.k8s.io", subresource="scopes"))
    return [*found, *(may("impersonate", "serviceaccounts", namespace=other.name) for other in place.others)]


def _certificates(_: Place) -> list[Attempt]:
    requests, signers = kinds.SIGNING_REQUESTS.plural, "signers"
    return [
        may("create", requests, group=kinds.CERTIFICATES),
        may("update", requests, group=kinds.CERTIFICATES, subresource="approval"),
        may("update", requests, group=kinds.CERTIFICATES, subresource="status"),
        may("approve", signers, group=kinds.CERTIFICATES),
        may("sign", signers, group=kinds.CERTIFICATES),
    ]


def _admission(place: Place) -> list[Attempt]:
    return [
        attempt
        for resource in ADMISSION_KINDS
        for attempt in (create(resource, named(place)), delete(resource, place.name))
    ]


def _definitions(place: Place) -> list[Attempt]:
    return [
        create(kinds.CRDS, named(place)),
        delete(kinds.CRDS, place.name),
        create(kinds.API_SERVICES, named(place)),
        delete(kinds.API_SERVICES, place.name),
    ]


def _classes(place: Place) -> list[Attempt]:
    found = (kinds.PRIORITY_CLASSES, kinds.RUNTIME_CLASSES, kinds.INGRESS_CLASSES, kinds.STORAGE_CLASSES)
    return [attempt for each in found for attempt in (create(each, named(place)), delete(each, place.name))]


def _queues(place: Place) -> list[Attempt]:
    found = (kinds.FLOW_SCHEMAS, kinds.LEVELS)
    return [attempt for each in found for attempt in (create(each, named(place)), delete(each, place.name))]


def _insides(_: Place) -> list[Attempt]:
    paths = ("/metrics", "/logs/", "/debug/pprof/", "/debug/api_priority_and_fairness/dump_requests", "/configz")
    found = [get(path, missing=Missing.SKIPPED) for path in paths]
    return [*found, get("/apis/metrics.k8s.io/v1beta1/nodes", missing=Missing.SKIPPED)]


def _across(_: Place) -> list[Attempt]:
    return [list_(resource) for resource in (kinds.SECRETS, *READ_OF_OTHERS)]


def _namespaces(place: Place) -> list[Attempt]:
    return [create(Namespace.resource, named(place)), delete(Namespace.resource, place.name)]


def _level(place: Place) -> list[Attempt] | Nothing:
    levels = place.levels
    if levels is None:
        return Nothing("whoever asked may not read PriorityLevelConfigurations")

    def judge(answer: Answer) -> str:
        level = levels.get(answer.headers.get("x-kubernetes-pf-prioritylevel-uid", ""), "")
        own = {"exempt", "system", "leader-election", "node-high", "workload-high", "workload-low", "global-default"}
        return f"requests are served in Kubernetes' level {level!r}, beside the cluster's own" if level in own else ""

    return [
        get(f"/api/v1/namespaces/{place.namespace}/configmaps?limit=1", "read, and look where it queued", judge=judge)
    ]


def _self_service(place: Place) -> list[Attempt]:
    view = {**MASTERS, "name": "view"}
    role = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    return [
        create(RoleBinding.resource, {**named(place), "roleRef": view, "subjects": [user(place)]}, place.namespace),
        create(kinds.ROLES, {**named(place), "rules": [role]}, place.namespace),
    ]


RBAC_FIX = (
    "Take the right from the roles that give it to this user: `kubectl get clusterrolebindings,rolebindings -A -o wide`"
    " shows them."
)


def of_rights(  # noqa: PLR0917 - a row of a table
    id_: str,
    title: str,
    severity: Severity,
    tries: str,
    proves: str,
    attempts: Attempts,
    *,
    area: Area = Area.API,
    group: str = "API",
    **more: Any,  # noqa: ANN401
) -> Check:
    """Return a check of what a tenant may do, by default mended by taking a right away."""
    facts: Json = {"fix": RBAC_FIX, **more}
    return Check(
        id=f"TNT-{group}-{id_}",
        title=title,
        area=area,
        severity=severity,
        tries=tries,
        proves=proves,
        attempts=attempts,
        **facts,
    )


CHECKS: Sequence[Check] = (
    of_rights(
        ADMINISTRATOR,
        "Is no administrator",
        Severity.CRITICAL,
        "Asks whether it may do everything. Where it may, nothing else is tried.",
        "The rules of tenants hold for the tenant at all.",
        lambda _: [may("*", "*", group="*")],
    ),
    of_rights(
        "001",
        "Secrets of others",
        Severity.CRITICAL,
        "Lists and reads Secrets in namespaces of others.",
        "Nobody's credentials are the tenant's.",
        of_others(_secrets),
        benchmark="block_other_tenant_resources",
    ),
    of_rights(
        "002",
        "Objects of others",
        Severity.HIGH,
        "Lists pods, services, events, roles and more in namespaces of others.",
        "What others run is not seen.",
        of_others(_reads),
        benchmark="block_other_tenant_resources",
    ),
    of_rights(
        "003",
        "Lists over all namespaces",
        Severity.HIGH,
        "Lists Secrets, pods, events and more of the whole cluster at once.",
        "No list goes over the tenant's own namespaces.",
        _across,
        benchmark="block_other_tenant_resources",
    ),
    of_rights(
        "004",
        "Writes into namespaces of others",
        Severity.CRITICAL,
        "Creates ConfigMaps, Leases and RoleBindings there, and deletes Secrets (dry runs).",
        "Nothing of others is changed.",
        of_others(_writes),
        benchmark="block_other_tenant_resources",
    ),
    of_rights(
        "005",
        "Into pods of others",
        Severity.CRITICAL,
        "Asks for logs, exec, attach, port-forward and proxy of pods and Services of others, none of which is there.",
        "The API server is no way into others' containers.",
        of_others(_inside),
    ),
    of_rights(
        "006",
        "Rights in namespaces of others",
        Severity.HIGH,
        "Asks the API server for a list of its own rights in each of them.",
        "No rule of any role, on whatever kind, reaches there.",
        of_others(_rights),
        benchmark="block_multitenant_resources",
    ),
    of_rights(
        "007",
        "Cluster-scoped objects are read",
        Severity.MEDIUM,
        "Lists nodes, PersistentVolumes, ClusterRoles, CRDs, webhooks, policies and more.",
        "The cluster's insides and other tenants' marks in them are not seen.",
        lambda _: [list_(resource) for resource in READ_CLUSTER_WIDE],
        benchmark="block_access_to_cluster_resources",
    ),
    of_rights(
        "008",
        "List of namespaces",
        Severity.MEDIUM,
        "Lists all namespaces.",
        "The names of other tenants are not told.",
        lambda _: [list_(Namespace.resource)],
        benchmark="block_access_to_cluster_resources",
    ),
    of_rights(
        "009",
        "Makes and deletes namespaces",
        Severity.HIGH,
        "Creates a namespace, and deletes one (dry runs).",
        "There is no namespace outside the tenant's tree, its quota and its rules.",
        _namespaces,
        benchmark="block_access_to_cluster_resources",
    ),
    of_rights(
        "010",
        "Rights in the whole cluster",
        Severity.CRITICAL,
        "Creates a ClusterRole with every right and a ClusterRoleBinding to cluster-admin (dry runs).",
        "The tenant does not make itself an administrator.",
        _cluster_roles,
        benchmark="block_access_to_cluster_resources",
    ),
    of_rights(
        "011",
        "Escalation inside its namespace",
        Severity.CRITICAL,
        "Creates a Role with every right, binds cluster-admin (dry runs), and asks for the verbs escalate and bind.",
        "Nobody gives more than they have.",
        _escalation,
        benchmark="block_role_privilege_escalation",
    ),
    of_rights(
        "012",
        "Impersonation",
        Severity.CRITICAL,
        "Asks whether it may impersonate users, groups and service accounts.",
        "The tenant does not act as somebody else.",
        _impersonation,
    ),
    of_rights(
        "013",
        "Tokens of service accounts of others",
        Severity.CRITICAL,
        "Asks whether it may make tokens in namespaces of others.",
        "The tenant does not become a controller of the cluster.",
        of_others(_tokens),
    ),
    of_rights(
        "014",
        "Certificates",
        Severity.CRITICAL,
        "Asks whether it may request certificates, approve or sign them.",
        "The tenant does not get itself another name.",
        _certificates,
    ),
    of_rights(
        "015",
        "Webhooks and admission policies",
        Severity.CRITICAL,
        "Creates and deletes each kind of webhook and admission policy (dry runs).",
        "The tenant neither reads others' requests nor lifts its own guards.",
        _admission,
    ),
    of_rights(
        "016",
        "Kinds of the API",
        Severity.HIGH,
        "Creates and deletes CustomResourceDefinitions and APIServices (dry runs).",
        "The API of others is not changed.",
        _definitions,
    ),
    of_rights(
        "017",
        "Classes of the cluster",
        Severity.HIGH,
        "Creates and deletes PriorityClasses, RuntimeClasses, IngressClasses and StorageClasses (dry runs).",
        "What all tenants name is the administrators'.",
        _classes,
    ),
    of_rights(
        "018",
        "Queues of the API server",
        Severity.HIGH,
        "Creates and deletes FlowSchemas and PriorityLevelConfigurations (dry runs).",
        "The tenant does not put itself first.",
        _queues,
    ),
    of_rights(
        "019",
        "Fair share of the API server",
        Severity.MEDIUM,
        "Reads something, and looks in which priority level the request was served.",
        "A flood of the tenant's requests does not hold the cluster's own.",
        _level,
        fix="Install Tenantry's FlowSchemas (`tenantry install`), or name the tenant in none that trusts it.",
        alone=Alone.DEPENDS,
    ),
    of_rights(
        "020",
        "The API server's insides",
        Severity.MEDIUM,
        "Reads /metrics, /logs, /debug and the metrics of nodes.",
        "Names and loads of others are not told by measurements.",
        _insides,
    ),
    of_rights(
        "021",
        "Gives rights to its own people",
        Severity.LOW,
        "Creates a Role and a RoleBinding to view in its own namespace (dry runs); this must be allowed.",
        "The tenant manages its own people without an administrator.",
        _self_service,
        fix=f"Bind an owner to the ClusterRole {marks.OWNER_ROLE!r}, or admin, in the namespace.",
        allowed=True,
        alone=Alone.DEPENDS,
        benchmark="create_role_bindings",
    ),
)
