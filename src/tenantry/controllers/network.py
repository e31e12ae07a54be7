"""The network policies of every namespace of a tenant's tree. Pure.

    Isolated   tenantry-isolation   in from and out to the same zone, in from the ingress controllers that an
                                    administrator names, and out to the cluster's DNS
    Baseline   this, and
               tenantry-outside     out to any address but nodes', link-local and metadata ones; not for pods that have
                                    the label tenantry.dev/egress, whose own policies decide
    Open       tenantry-isolation   for no pod: it keeps a place in the count of NetworkPolicies

A zone is a tenant without its Subtenants, or a Subtenant without the Subtenants below it. Policies add up: one zone
reaches another of the same tree where each side has opened itself to the other by a policy of its own.

Source: Kubernetes, "Network Policies".
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping

import msgspec

from tenantry.api import marks
from tenantry.api.kubernetes import (
    EgressRule,
    IngressRule,
    IPBlock,
    LabelRequirement,
    LabelSelector,
    NetworkPolicy,
    NetworkPolicyPeer,
    NetworkPolicyPort,
    NetworkPolicySpec,
)
from tenantry.api.tenancydefaults import NODE_LOCAL_DNS, IngressController, NetworkDefaults
from tenantry.api.tenant import NetworkIsolation, Tenant
from tenantry.controllers.tenantnamespace import WAVE_LIMITS, TenantNamespace, meta
from tenantry.engine.plan import Child
from tenantry.world.addresses import METADATA, blocks

ISOLATION_POLICY = "tenantry-isolation"
OUTSIDE_POLICY = "tenantry-outside"

_NO_PODS = LabelSelector(
    match_expressions=tuple(LabelRequirement(key=marks.NETWORK, operator=each) for each in ("Exists", "DoesNotExist"))
)
"""It selects no pod: each pod has the label, or does not have it."""

DNS_PORT = 53
EVERYWHERE = ("0.0.0.0/0", "::/0")


class ClusterAddresses(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses that the policies of all tenants name.

    Args:
        dns: Addresses of the cluster's DNS beside its pods.
        kept: CIDRs that no tenant's pods reach, sorted.
        is_widened: `kept` covers more than it has to: the nodes' addresses are too many for a policy.
        controllers: The pods of ingress controllers, which connect to pods of all tenants.
    """

    dns: tuple[str, ...] = (NODE_LOCAL_DNS,)
    kept: tuple[str, ...] = METADATA
    is_widened: bool = False
    controllers: tuple[NetworkPolicyPeer, ...] = ()


def cluster_addresses(nodes: Iterable[str], defaults: NetworkDefaults) -> ClusterAddresses:
    """Return the addresses that the policies of all tenants name.

    Args:
        nodes: The addresses of all nodes.
        defaults: The network section of TenancyDefaults.
    """
    kept = blocks((*METADATA, *defaults.kept_cidrs, *nodes))
    return ClusterAddresses(
        dns=defaults.dns_addresses,
        kept=kept.cidrs,
        is_widened=kept.is_widened,
        controllers=tuple(_controller(each) for each in defaults.ingress_controllers),
    )


def _controller(given: IngressController) -> NetworkPolicyPeer:
    """Return the peer that is an ingress controller, as long as no tenant has its namespace."""
    # A tenant of that name can be created later, and its owner chooses the labels of pods.
    return _pods(given.namespace, given.pod_labels, LabelRequirement(key=marks.TENANT_UID, operator="DoesNotExist"))


def _pods(namespace: str, labels: Mapping[str, str], *requirements: LabelRequirement) -> NetworkPolicyPeer:
    """Return the peer that is some pods of one namespace, if that meets the requirements."""
    return NetworkPolicyPeer(
        namespace_selector=LabelSelector(
            match_labels={"kubernetes.io/metadata.name": namespace}, match_expressions=requirements
        ),
        pod_selector=LabelSelector(match_labels=dict(sorted(labels.items()))),
    )


ALONE = ClusterAddresses()
"""The addresses for a cluster that was not read."""


def core_zone(tenant: Tenant) -> str:
    """Return the zone of a tenant without those that begin below its core namespace."""
    # By uid, not by name: a later tenant of the same name is another one.
    return tenant.metadata.uid


def labels(tenant: Tenant, zone: str) -> dict[str, str]:
    """Return the labels that policies select a namespace of a tenant by."""
    return {marks.NETWORK: tenant.spec.isolation.network, marks.ZONE: zone}


def allowances(tenant: Tenant) -> dict[str, str]:
    """Return the annotations from which admission knows what an administrator allows the tenant.

    They are the CIDRs that its own policies may name, and the tenants whose contributed nodes its pods may tolerate.
    """
    given = tenant.spec.isolation
    lists = {marks.CIDRS: given.allowed_cidrs, marks.CONTRIBUTORS: given.contributors}
    return {key: ",".join(values) for key, values in lists.items() if values}


def policies(namespace: TenantNamespace, zone: str, around: ClusterAddresses) -> list[Child]:
    """Return the NetworkPolicies that the tenant's isolation requires.

    Args:
        namespace: The namespace.
        zone: The value of its label `tenantry.dev/zone`.
        around: The addresses of nodes and DNS.
    """
    mode = namespace.tenant.spec.isolation.network
    # Pods that no NetworkPolicy selects may have all traffic (Kubernetes, "Network Policies"). A change to another mode
    # must not create an object: an owner who takes every place in the count would prevent it for ever.
    if mode is NetworkIsolation.OPEN:
        return [_policy(namespace, ISOLATION_POLICY, types=("Ingress",), pods=_NO_PODS)]
    own = NetworkPolicyPeer(namespace_selector=LabelSelector(match_labels={marks.ZONE: zone}))
    found = [
        _policy(
            namespace,
            ISOLATION_POLICY,
            ingress=(IngressRule(from_=(own, *around.controllers)),),
            egress=(EgressRule(to=(own,)), _dns(around)),
            types=("Ingress", "Egress"),
        ),
    ]
    if mode is NetworkIsolation.BASELINE:
        own_word = LabelRequirement(key=marks.EGRESS, operator="DoesNotExist")
        pods = LabelSelector(match_expressions=(own_word,))
        found.append(_policy(namespace, OUTSIDE_POLICY, egress=(_outside(around),), types=("Egress",), pods=pods))
    return found


def _dns(around: ClusterAddresses) -> EgressRule:
    pods = _pods("kube-system", {"k8s-app": "kube-dns"})
    addresses = (ipaddress.ip_network(address) for address in around.dns)
    blocks = (NetworkPolicyPeer(ip_block=IPBlock(cidr=str(address))) for address in addresses)
    ports = tuple(NetworkPolicyPort(protocol=protocol, port=DNS_PORT) for protocol in ("UDP", "TCP"))
    return EgressRule(to=(pods, *blocks), ports=ports)


def _outside(around: ClusterAddresses) -> EgressRule:
    return EgressRule(to=tuple(NetworkPolicyPeer(ip_block=_all_but(cidr, around.kept)) for cidr in EVERYWHERE))


def _all_but(cidr: str, kept: tuple[str, ...]) -> IPBlock:
    # What is left out must be of the same family: the API server refuses the rest.
    is_v6 = ":" in cidr
    return IPBlock(cidr=cidr, except_=tuple(each for each in kept if (":" in each) is is_v6))


def _policy(
    namespace: TenantNamespace,
    name: str,
    *,
    types: tuple[str, ...],
    ingress: tuple[IngressRule, ...] = (),
    egress: tuple[EgressRule, ...] = (),
    pods: LabelSelector | None = None,
) -> Child:
    spec = NetworkPolicySpec(pod_selector=pods or LabelSelector(), policy_types=types, ingress=ingress, egress=egress)
    return Child(object=NetworkPolicy(metadata=meta(namespace, name), spec=spec), wave=WAVE_LIMITS)
