"""Rules on what makes workloads reachable from outside: Services, hosts, and annotations that controllers read."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType, field

from tenantry.api.crd import rules
from tenantry.api.ruledeclarations import (
    ARE_CIDRS,
    DOMAIN_PATTERN,
    NameList,
    PatternList,
    Permission,
    RuleModel,
    ServiceType,
    about,
)


class Services(RuleModel, frozen=True, kw_only=True):
    """How Services may be reached from outside."""

    types: (
        Annotated[
            tuple[ServiceType, ...],
            Meta(max_length=3),
            about("ClusterIP, NodePort, LoadBalancer.", (ServiceType.CLUSTER_IP,)),
        ]
        | UnsetType
    ) = UNSET
    external_ips: Annotated[Permission, about("spec.externalIPs.", Permission.REFUSE)] | UnsetType = field(
        name="externalIPs", default=UNSET
    )
    external_name: Annotated[Permission, about("Services of type ExternalName.", Permission.REFUSE)] | UnsetType = UNSET
    external_names: (
        Annotated[
            PatternList,
            about(
                "Regular expressions (RE2), one of which spec.externalName of a Service of type ExternalName matches"
                " as a whole. Needs externalName: Allow."
            ),
        ]
        | UnsetType
    ) = UNSET
    load_balancer_source_ranges: (
        Annotated[
            NameList,
            Meta(extra_json_schema=rules(ARE_CIDRS)),
            about("CIDRs, in one of which each range of a load balancer must be."),
        ]
        | UnsetType
    ) = UNSET
    endpoints: (
        Annotated[
            Permission,
            about("Endpoints and EndpointSlices that people write: they lead anywhere.", Permission.REFUSE),
        ]
        | UnsetType
    ) = UNSET


class Hostnames(RuleModel, frozen=True, kw_only=True):
    """Which hosts Ingresses, Gateways and routes may have."""

    allowed: (
        Annotated[PatternList, about("Regular expressions (RE2), one of which a whole host name matches.")] | UnsetType
    ) = UNSET
    domain: (
        Annotated[
            str,
            Meta(min_length=1, max_length=189, pattern=DOMAIN_PATTERN),
            about("Hosts are TENANT.DOMAIN or below: names of tenants are unique, and so are their hosts."),
        ]
        | UnsetType
    ) = UNSET
    catch_all: (
        Annotated[
            Permission,
            about(
                "Ingresses, listeners and routes without a host, or of a whole top-level domain (*.com).",
                Permission.REFUSE,
            ),
        ]
        | UnsetType
    ) = UNSET
    ingress_classes: Annotated[NameList, about("IngressClasses; an Ingress must name one.")] | UnsetType = UNSET
    gateway_classes: Annotated[NameList, about("GatewayClasses that a Gateway may name.")] | UnsetType = UNSET


class Annotations(RuleModel, frozen=True, kw_only=True):
    """Annotations of Ingresses, Gateways, routes, Services and Pods, which shared controllers read."""

    dangerous: (
        Annotated[
            Permission,
            about("Keys that name hosts, objects of other namespaces or raw configuration.", Permission.REFUSE),
        ]
        | UnsetType
    ) = UNSET
    unknown: (
        Annotated[
            Permission,
            about("Keys that are not known to be harmless.", restricted=Permission.REFUSE, warned=Permission.REFUSE),
        ]
        | UnsetType
    ) = UNSET
    known: (
        Annotated[
            PatternList,
            about(
                "Regular expressions (RE2), one of which a whole harmless key matches, beside the keys that Tenantry"
                " knows. TenancyDefaults and the Tenant add to each other; a list of a Subnamespace has no effect."
            ),
        ]
        | UnsetType
    ) = UNSET
