"""Checks of the network: pods are closed to others, Services and Ingresses reach only what rules allow. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenantry.api.kubernetes import NetworkPolicy
from tenantry.api.model import Json
from tenantry.audit import corefile, kinds, openings
from tenantry.audit.attempts import Judge, create, delete, get, may, patch
from tenantry.audit.check import (
    Attempt,
    AttemptResponse,
    AttemptsOf,
    AuditCheck,
    NotApplicable,
    Observation,
    Severity,
    WithoutTenantry,
)
from tenantry.audit.checks.api import named
from tenantry.audit.checks.table import RBAC_FIX, check
from tenantry.audit.context import GUEST, AuditContext
from tenantry.policy.request import parts

ALL: Json = {}
"""An empty rule or selector applies to everything."""

ISOLATED = "Set spec.isolation.network of the Tenant to Isolated."
METADATA = "169.254.169.254"


def _read_policies(context: AuditContext, what: str, judge: Judge) -> list[Attempt]:
    path = f"/apis/networking.k8s.io/v1/namespaces/{context.namespace}/networkpolicies"
    return [get(path, f"read the NetworkPolicies of {context.namespace!r} and check {what}", judge=judge)]


def _ingress_policies(context: AuditContext) -> list[Attempt]:
    def judge(answer: AttemptResponse) -> str:
        found = parts(answer.body, "items")
        return openings.ingress(found, context.others, context.pod_cidrs, context.controllers)

    return _read_policies(context, "who may connect", judge)


def _egress_policies(context: AuditContext) -> list[Attempt]:
    def judge(answer: AttemptResponse) -> str:
        return openings.egress(parts(answer.body, "items"), context.neighbours, context.pod_cidrs)

    return _read_policies(context, "where pods may connect", judge)


def policy(context: AuditContext, what: str, judge: Judge | None = None, **spec: object) -> Attempt:
    """Return the creation of a NetworkPolicy for all pods."""
    wanted: Json = {"podSelector": {}, **spec}
    return create(NetworkPolicy.resource, {**named(context), "spec": wanted}, context.namespace, what=what, judge=judge)


def _honest_policy(context: AuditContext) -> Attempt:
    return policy(context, "between its own pods", ingress=[{"from": [{"podSelector": ALL}]}])


def _opened(context: AuditContext) -> list[Attempt]:
    def judge(answer: AttemptResponse) -> str:
        # A cluster may refuse a rule without peers, or give it some.
        return openings.of_rules(answer.body, context.others, context.pod_cidrs)

    found = [
        policy(context, "that admits every client", judge, ingress=[ALL]),
        policy(context, "that admits all namespaces", ingress=[{"from": [{"namespaceSelector": ALL}]}]),
        policy(context, "that admits every address", ingress=[{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]),
    ]
    for other in context.neighbours[:1]:
        selector = {"matchLabels": {"kubernetes.io/metadata.name": other.name}}
        peer = {"namespaceSelector": selector}
        found.append(policy(context, f"that admits {other.name!r}", ingress=[{"from": [peer]}]))
    return found


def _opened_outwards(context: AuditContext) -> list[Attempt]:
    block = {"ipBlock": {"cidr": f"{METADATA}/32"}}
    everywhere, types = {"namespaceSelector": ALL}, ["Egress"]
    return [
        policy(context, "with egress to every namespace", egress=[{"to": [everywhere]}], policyTypes=types),
        policy(context, f"with egress to {METADATA}", egress=[{"to": [block]}], policyTypes=types),
    ]


# -- Services -------------------------------------------------------------------------------------


def service(context: AuditContext, what: str, **spec: object) -> Attempt:
    """Return the creation of a Service."""
    wanted: Json = {"ports": [{"port": 80}], "selector": {"audit": "x"}, **spec}
    return create(kinds.SERVICES, {**named(context), "spec": wanted}, context.namespace, what=what)


def _honest_service(context: AuditContext) -> Attempt:
    return service(context, "of type ClusterIP")


def _external_name(context: AuditContext) -> list[Attempt]:
    other = context.neighbour
    # Ingress controllers resolve this name with their own rights.
    wanted = {"type": "ExternalName", "externalName": f"x.{other}.svc.cluster.local"}
    value = {**named(context), "spec": wanted}
    return [create(kinds.SERVICES, value, context.namespace, what=f"of a name in {other!r}")]


def _endpoints(context: AuditContext) -> list[Attempt]:
    slice_ = {
        **named(context, labels={"kubernetes.io/service-name": context.name}),
        "addressType": "IPv4",
        # TEST-NET-1 (RFC 5737): no server has this address.
        "endpoints": [{"addresses": ["192.0.2.1"]}],
        "ports": [{"port": 80}],
    }
    subsets = [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]}]
    return [
        create(kinds.ENDPOINT_SLICES, slice_, context.namespace),
        create(kinds.ENDPOINTS, {**named(context), "subsets": subsets}, context.namespace),
        delete(kinds.ENDPOINT_SLICES, context.name, context.namespace),
    ]


def _addresses(context: AuditContext) -> list[Attempt]:
    change = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}
    own = context.namespace
    return [
        patch(kinds.SERVICES, context.name, change, own, subresource="status"),
        may("update", "services", namespace=own, subresource="status"),
        may("update", "ingresses", group=kinds.NETWORKING, namespace=own, subresource="status"),
    ]


# -- Ingresses ------------------------------------------------------------------------------------

BACKEND: Json = {"service": {"name": "audit", "port": {"number": 80}}}


def _ingress(context: AuditContext, what: str, **spec: object) -> Attempt:
    return create(kinds.INGRESSES, {**named(context), "spec": spec}, context.namespace, what=what)


def _rule(host: str) -> Json:
    path = {"path": "/", "pathType": "Prefix", "backend": BACKEND}
    return {"http": {"paths": [path]}, **({"host": host} if host else {})}


def _taken(context: AuditContext) -> list[Attempt] | NotApplicable:
    if context.hosts is None:
        return NotApplicable("the administrator may not read the Ingresses of all namespaces")
    if not context.hosts:
        return NotApplicable("no Ingress of another namespace has a host")
    return [_ingress(context, f"of the host {host!r}", rules=[_rule(host)]) for host in context.hosts[:3]]


def _wildcards(context: AuditContext) -> list[Attempt]:
    return [
        _ingress(context, "without a host", rules=[_rule("")]),
        _ingress(context, "with a default backend", defaultBackend=BACKEND),
        _ingress(context, "of the host '*.com'", rules=[_rule("*.com")]),
    ]


def _resolved(context: AuditContext) -> Observation | NotApplicable:
    if context.corefile is None:
        return NotApplicable("the administrator may not read the ConfigMap 'coredns' in 'kube-system'")
    if not context.corefile:
        return NotApplicable("there is no ConfigMap 'coredns' in 'kube-system'")
    unguarded = ", ".join(corefile.unguarded(context.corefile))
    wrong = f"the server block {unguarded} answers every pod for every name of the cluster" if unguarded else ""
    return Observation("inspect the Corefile", wrong)


def _check(  # noqa: PLR0917 - a row of the table below
    id_: str,
    title: str,
    severity: Severity,
    tries: str,
    proves: str,
    fix: str,
    attempts: AttemptsOf,
    **more: Any,  # noqa: ANN401
) -> AuditCheck:
    more = {"alone": WithoutTenantry.OPEN, **more}
    return check(f"NET-{id_}", title, severity, tries, proves, attempts, fix=fix, **more)


CHECKS: Sequence[AuditCheck] = (
    _check(
        "001",
        "NetworkPolicies close pods to other namespaces",
        Severity.CRITICAL,
        "Reads its NetworkPolicies, and checks whether any other namespace may connect to its pods.",
        "If the network plugin enforces policies, pods of others cannot connect to the tenant's pods.",
        ISOLATED,
        _ingress_policies,
        benchmark="default_deny_network_connections_across_tenants",
    ),
    _check(
        "002",
        "NetworkPolicies keep pods from other namespaces",
        Severity.MEDIUM,
        "Reads its NetworkPolicies, and checks whether its pods may connect to other namespaces.",
        "A compromised pod cannot reach pods of others, even open ones.",
        ISOLATED,
        _egress_policies,
        benchmark="default_deny_network_connections_across_tenants",
    ),
    _check(
        "003",
        "Own policies cannot admit other tenants",
        Severity.HIGH,
        "Creates NetworkPolicies that admit every client, all namespaces, or another tenant (dry runs). They must be"
        " refused, or stored with peers of the tenant itself.",
        "No mistake of the tenant opens its pods.",
        ISOLATED,
        _opened,
        control=_honest_policy,
    ),
    _check(
        "004",
        "Own policies cannot allow egress to others",
        Severity.HIGH,
        "Creates NetworkPolicies that allow egress to all namespaces and to the metadata address (dry runs).",
        "The tenant does not extend where its pods may connect.",
        ISOLATED,
        _opened_outwards,
        control=_honest_policy,
    ),
    _check(
        "005",
        "Services cannot use ports of nodes (NodePort)",
        Severity.HIGH,
        "Creates a Service of type NodePort (dry run).",
        "Clients outside the cluster do not reach the tenant's pods without an administrator.",
        "Leave NodePort out of spec.rules.services.types of the Tenant.",
        lambda context: [service(context, "of type NodePort", type="NodePort")],
        control=_honest_service,
        benchmark="block_use_of_nodeport_services",
    ),
    _check(
        "006",
        "Services cannot create load balancers",
        Severity.MEDIUM,
        "Creates a Service of type LoadBalancer (dry run).",
        "The tenant does not use up public addresses and money.",
        "Leave LoadBalancer out of spec.rules.services.types of the Tenant.",
        lambda context: [service(context, "of type LoadBalancer", type="LoadBalancer")],
        control=_honest_service,
    ),
    _check(
        "007",
        "Services cannot take addresses (externalIPs)",
        Severity.CRITICAL,
        "Creates a Service with externalIPs (dry run): nodes then send the traffic for that address to the tenant.",
        "The tenant does not take over the traffic for an address (CVE-2020-8554).",
        "Set spec.rules.services.externalIPs of the Tenant to Refuse.",
        lambda context: [service(context, "with externalIPs", externalIPs=["192.0.2.1"])],
        control=_honest_service,
    ),
    _check(
        "008",
        "Cannot set addresses of load balancers",
        Severity.HIGH,
        "Writes an address into the status of a Service (dry run).",
        "The tenant does not take over the traffic for an address (CVE-2020-8554).",
        RBAC_FIX,
        _addresses,
        alone=WithoutTenantry.REFUSED,
    ),
    _check(
        "009",
        "Services cannot alias names of others (ExternalName)",
        Severity.MEDIUM,
        "Creates a Service of type ExternalName for a name in another namespace (dry run).",
        "An Ingress controller does not forward requests to Services of others.",
        "Set spec.rules.services.externalName of the Tenant to Refuse.",
        _external_name,
        control=_honest_service,
    ),
    _check(
        "010",
        "Cannot write endpoints",
        Severity.HIGH,
        "Creates Endpoints and EndpointSlices with an address of its choice (dry runs).",
        "Ingress controllers and the API server's proxy do not connect to addresses of others or of nodes.",
        RBAC_FIX,
        _endpoints,
        alone=WithoutTenantry.REFUSED,
    ),
    _check(
        "011",
        "Ingresses cannot take hosts of others",
        Severity.HIGH,
        "Creates an Ingress of a host that an Ingress of another namespace has (dry run).",
        "The tenant does not receive the requests of another tenant's clients.",
        "Set spec.rules.hostnames.allowed of the Tenants to patterns that do not overlap.",
        _taken,
    ),
    _check(
        "012",
        "Ingresses cannot take all hosts",
        Severity.MEDIUM,
        "Creates Ingresses without a host, with a default backend, and of the host *.com (dry runs).",
        "The tenant does not receive requests for hosts that others will use.",
        "Set spec.rules.hostnames.allowed of the Tenant.",
        _wildcards,
    ),
    _check(
        "013",
        "Can write its own NetworkPolicies",
        Severity.LOW,
        "Creates a NetworkPolicy between its own pods (dry run); this must be allowed.",
        "The tenant separates its own pods without an administrator.",
        "Bind an owner to the ClusterRole tenantry-owner, or admin, in the namespace.",
        lambda context: NotApplicable(GUEST) if context.is_guest else [_honest_policy(context)],
        allowed=True,
        alone=WithoutTenantry.DEPENDS,
        benchmark="create_network_policies",
    ),
    _check(
        "023",
        "CoreDNS is configured to hide names of other tenants",
        Severity.MEDIUM,
        "Checks, as an administrator, whether CoreDNS has the plugin tenantry wherever it has kubernetes.",
        "CoreDNS is configured to hide the names of one tenant from another.",
        "Use the CoreDNS with Tenantry's plugin, and add it to each server block (docs/concepts/dns.md).",
        _resolved,
        alone=WithoutTenantry.DEPENDS,
    ),
)
