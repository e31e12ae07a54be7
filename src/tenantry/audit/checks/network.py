"""Checks of the network: pods are closed to others, and Services and Ingresses reach no further than they may. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenantry.api.kubernetes import NetworkPolicy
from tenantry.audit import corefile, kinds, openings
from tenantry.audit.attempts import create, delete, get, may, patch, rows
from tenantry.audit.check import Alone, Answer, Area, Attempt, Attempts, Check, Nothing, Seen, Severity
from tenantry.audit.checks.api import RBAC_FIX, named
from tenantry.audit.place import Place

Json = dict[str, Any]

ALL: Json = {}
"""An empty rule, or selector: it is about everything."""

ISOLATED = "Set spec.isolation.network of the Tenant to Isolated."
METADATA = "169.254.169.254"


def _read(place: Place, what: str, judge: Any) -> list[Attempt]:  # noqa: ANN401 - a judge
    path = f"/apis/networking.k8s.io/v1/namespaces/{place.namespace}/networkpolicies"
    return [get(path, f"read the NetworkPolicies of {place.namespace!r} and look {what}", judge=judge)]


def _ingress(place: Place) -> list[Attempt]:
    def judge(answer: Answer) -> str:
        return openings.ingress(rows(answer.body, "items"), place.others, place.pod_cidrs)

    return _read(place, "who may connect", judge)


def _egress(place: Place) -> list[Attempt]:
    def judge(answer: Answer) -> str:
        return openings.egress(rows(answer.body, "items"), place.neighbours, place.pod_cidrs)

    return _read(place, "where pods may connect", judge)


def policy(place: Place, what: str, **spec: object) -> Attempt:
    """Return the creation of a NetworkPolicy for all pods."""
    wanted: Json = {"podSelector": {}, **spec}
    return create(NetworkPolicy.resource, {**named(place), "spec": wanted}, place.namespace, what=what)


def _honest_policy(place: Place) -> Attempt:
    return policy(place, "between its own pods", ingress=[{"from": [{"podSelector": ALL}]}])


def _opened(place: Place) -> list[Attempt]:
    found = [
        policy(place, "that lets everybody in", ingress=[ALL]),
        policy(place, "that lets all namespaces in", ingress=[{"from": [{"namespaceSelector": ALL}]}]),
        policy(place, "that lets every address in", ingress=[{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]),
    ]
    for other in place.neighbours[:1]:
        selector = {"matchLabels": {"kubernetes.io/metadata.name": other.name}}
        peer = {"namespaceSelector": selector}
        found.append(policy(place, f"that lets {other.name!r} in", ingress=[{"from": [peer]}]))
    return found


def _opened_outwards(place: Place) -> list[Attempt]:
    block = {"ipBlock": {"cidr": f"{METADATA}/32"}}
    everywhere, types = {"namespaceSelector": ALL}, ["Egress"]
    return [
        policy(place, "that lets pods out to every namespace", egress=[{"to": [everywhere]}], policyTypes=types),
        policy(place, f"that lets pods out to {METADATA}", egress=[{"to": [block]}], policyTypes=types),
    ]


# -- Services -------------------------------------------------------------------------------------


def service(place: Place, what: str, **spec: object) -> Attempt:
    """Return the creation of a Service."""
    wanted: Json = {"ports": [{"port": 80}], "selector": {"audit": "x"}, **spec}
    return create(kinds.SERVICES, {**named(place), "spec": wanted}, place.namespace, what=what)


def _honest_service(place: Place) -> Attempt:
    return service(place, "of type ClusterIP")


def _of_type(kind: str) -> Attempts:
    return lambda place: [service(place, f"of type {kind}", type=kind)]


def _external_name(place: Place) -> list[Attempt]:
    other = place.others[0].name if place.others else "kube-system"
    wanted = {"type": "ExternalName", "externalName": f"x.{other}.svc.cluster.local"}
    value = {**named(place), "spec": wanted}
    return [create(kinds.SERVICES, value, place.namespace, what=f"of a name in {other!r}")]


def _hijacked(place: Place) -> list[Attempt]:
    slice_ = {
        **named(place, labels={"kubernetes.io/service-name": place.name}),
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.0.2.1"]}],
        "ports": [{"port": 80}],
    }
    subsets = [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]}]
    return [
        create(kinds.ENDPOINT_SLICES, slice_, place.namespace),
        create(kinds.ENDPOINTS, {**named(place), "subsets": subsets}, place.namespace),
        delete(kinds.ENDPOINT_SLICES, place.name, place.namespace),
    ]


def _addresses(place: Place) -> list[Attempt]:
    return [
        patch(
            kinds.SERVICES,
            place.name,
            {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}},
            place.namespace,
            subresource="status",
        ),
        may("update", "services", namespace=place.namespace, subresource="status"),
        may("update", "ingresses", group=kinds.NETWORKING, namespace=place.namespace, subresource="status"),
    ]


# -- Ingresses ------------------------------------------------------------------------------------


def _ingress_of(place: Place, what: str, **spec: object) -> Attempt:
    return create(kinds.INGRESSES, {**named(place), "spec": spec}, place.namespace, what=what)


def _backend() -> Json:
    return {"service": {"name": "audit", "port": {"number": 80}}}


def _rule(host: str) -> Json:
    path = {"path": "/", "pathType": "Prefix", "backend": _backend()}
    return {"http": {"paths": [path]}, **({"host": host} if host else {})}


def _taken(place: Place) -> list[Attempt] | Nothing:
    if place.hosts is None:
        return Nothing("whoever asked may not read the Ingresses of all namespaces")
    if not place.hosts:
        return Nothing("no Ingress of another namespace has a host")
    return [_ingress_of(place, f"of the host {host!r}", rules=[_rule(host)]) for host in place.hosts[:3]]


def _catching(place: Place) -> list[Attempt]:
    return [
        _ingress_of(place, "without a host", rules=[_rule("")]),
        _ingress_of(place, "of a default backend", defaultBackend=_backend()),
        _ingress_of(place, "of the host '*.com'", rules=[_rule("*.com")]),
    ]


def _resolved(place: Place) -> Seen | Nothing:
    if place.corefile is None:
        return Nothing("whoever asked may not read the ConfigMap 'coredns' in 'kube-system'")
    if not place.corefile:
        return Nothing("there is no ConfigMap 'coredns' in 'kube-system'")
    open_ = ", ".join(corefile.unguarded(place.corefile))
    wrong = f"the server block {open_} answers every pod for every name of the cluster" if open_ else ""
    return Seen("look at the Corefile", wrong)


def _self_service(place: Place) -> list[Attempt]:
    return [_honest_policy(place)]


def _check(  # noqa: PLR0917 - a row of the table below
    id_: str,
    title: str,
    severity: Severity,
    tries: str,
    proves: str,
    fix: str,
    attempts: Attempts,
    **more: Any,  # noqa: ANN401
) -> Check:
    return Check(
        id=f"TNT-NET-{id_}",
        title=title,
        area=Area.NETWORK,
        severity=severity,
        tries=tries,
        proves=proves,
        fix=fix,
        attempts=attempts,
        **more,
    )


CHECKS: Sequence[Check] = (
    _check(
        "001",
        "Pods are closed to others",
        Severity.CRITICAL,
        "Reads its NetworkPolicies, and looks whether any other namespace may connect to its pods.",
        "Where the network plugin carries policies out, nobody else connects to the tenant's pods.",
        ISOLATED,
        _ingress,
        alone=Alone.OPEN,
        benchmark="default_deny_network_connections_across_tenants",
    ),
    _check(
        "002",
        "Pods do not reach others",
        Severity.MEDIUM,
        "Reads its NetworkPolicies, and looks whether its pods may connect to other namespaces.",
        "A pod that was broken into does not reach others', were they open.",
        ISOLATED,
        _egress,
        alone=Alone.OPEN,
        benchmark="default_deny_network_connections_across_tenants",
    ),
    _check(
        "003",
        "Own policies that open to others",
        Severity.HIGH,
        "Creates NetworkPolicies that let everybody, all namespaces, or another tenant in (dry runs).",
        "The tenant cannot be talked into opening itself.",
        ISOLATED,
        _opened,
        control=_honest_policy,
        alone=Alone.OPEN,
    ),
    _check(
        "004",
        "Own policies that reach out",
        Severity.HIGH,
        "Creates NetworkPolicies that let its pods out to all namespaces and to the metadata address (dry runs).",
        "The tenant does not lift its own confinement.",
        ISOLATED,
        _opened_outwards,
        control=_honest_policy,
        alone=Alone.OPEN,
    ),
    _check(
        "005",
        "Ports of nodes (NodePort)",
        Severity.HIGH,
        "Creates a Service of type NodePort (dry run).",
        "Nothing of the tenant's is reached from outside past the administrators.",
        "Leave NodePort out of spec.rules.services.types of the Tenant.",
        _of_type("NodePort"),
        control=_honest_service,
        alone=Alone.OPEN,
        benchmark="block_use_of_nodeport_services",
    ),
    _check(
        "006",
        "Load balancers",
        Severity.MEDIUM,
        "Creates a Service of type LoadBalancer (dry run).",
        "The tenant does not spend public addresses and money.",
        "Leave LoadBalancer out of spec.rules.services.types of the Tenant.",
        _of_type("LoadBalancer"),
        control=_honest_service,
        alone=Alone.OPEN,
    ),
    _check(
        "007",
        "Addresses of others (externalIPs)",
        Severity.CRITICAL,
        "Creates a Service with externalIPs (dry run): nodes then send what goes there to the tenant.",
        "Nobody takes over the traffic to an address (CVE-2020-8554).",
        "Set spec.rules.services.externalIPs of the Tenant to Refuse.",
        lambda place: [service(place, "with externalIPs", externalIPs=["192.0.2.1"])],
        control=_honest_service,
        alone=Alone.OPEN,
    ),
    _check(
        "008",
        "Addresses of load balancers",
        Severity.HIGH,
        "Writes an address into the status of a Service (dry run).",
        "Nobody takes over the traffic to an address (CVE-2020-8554).",
        RBAC_FIX,
        _addresses,
    ),
    _check(
        "009",
        "Names of others (ExternalName)",
        Severity.MEDIUM,
        "Creates a Service of type ExternalName for a name in another namespace (dry run).",
        "An Ingress controller is not sent to Services of others.",
        "Set spec.rules.services.externalName of the Tenant to Refuse.",
        _external_name,
        control=_honest_service,
        alone=Alone.OPEN,
    ),
    _check(
        "010",
        "Endpoints at will",
        Severity.HIGH,
        "Creates Endpoints and EndpointSlices of an address of its choice (dry runs).",
        "Ingress controllers and the API server's proxy are not sent to addresses of others or of nodes.",
        RBAC_FIX,
        _hijacked,
    ),
    _check(
        "011",
        "Hosts of others",
        Severity.HIGH,
        "Creates an Ingress of a host that an Ingress of another namespace has (dry run).",
        "Nobody gets the visitors of another tenant.",
        "Set spec.rules.hostnames.allowed of the Tenants to patterns that are apart.",
        _taken,
        alone=Alone.OPEN,
    ),
    _check(
        "012",
        "All hosts at once",
        Severity.MEDIUM,
        "Creates Ingresses without a host, of a default backend, and of the host *.com (dry runs).",
        "Nobody gets the visitors that others are about to have.",
        "Set spec.rules.hostnames.allowed of the Tenant.",
        _catching,
        alone=Alone.OPEN,
    ),
    _check(
        "013",
        "Writes its own policies",
        Severity.LOW,
        "Creates a NetworkPolicy between its own pods (dry run); this must be allowed.",
        "The tenant separates its own parts without an administrator.",
        "Bind an owner to the ClusterRole tenantry-owner, or admin, in the namespace.",
        _self_service,
        allowed=True,
        alone=Alone.DEPENDS,
        benchmark="create_network_policies",
    ),
    _check(
        "023",
        "DNS names of others, as CoreDNS is told",
        Severity.MEDIUM,
        "Looks, as an administrator, whether CoreDNS has the plugin tenantry wherever it has kubernetes.",
        "CoreDNS is told to keep the names of one tenant from another.",
        "Take the CoreDNS with Tenantry's plugin, and name it in each server block (docs/concepts/dns.md).",
        _resolved,
        alone=Alone.DEPENDS,
    ),
)
