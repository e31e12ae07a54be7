"""Where the API server of a VirtualControlPlane may connect to outside of the cluster."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from tenantry.api.crd import Rule
from tenantry.api.model import Model
from tenantry.api.planeserver import ISSUER_PATTERN, MOST_ISSUERS

# The last label begins with a letter, so that no program reads the name as an address.
HOST_PATTERN = r"^([*][.])?([a-z0-9]([-a-z0-9]*[a-z0-9])?[.])+[a-z]([-a-z0-9]*[a-z0-9])?$"
"""Of `spec.egress.allowedHosts`: at least two labels, and before them "*." for one or more labels."""


class PlaneEgress(Model, frozen=True, kw_only=True):
    """Where the API server of a control plane may connect to outside of the cluster."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.allowedCidrs) || self.allowedCidrs.all(c, isCIDR(c) && string(cidr(c).masked()) == c)",
            "must be CIDRs in their shortest form without host bits, as in 203.0.113.0/24",
            field="allowedCidrs",
        ),
    )

    allowed_cidrs: Annotated[
        tuple[Annotated[str, Meta(max_length=49)], ...],
        Meta(
            max_length=32,
            description="Addresses that webhooks and aggregated APIs may be reached at. Addresses that are not public"
            " need a CIDR within their range: 10.1.0.0/16, not 0.0.0.0/0. Loopback, link-local, metadata and"
            " multicast addresses, and those of the host's nodes, API servers, Services and pods, are never reached.",
        ),
    ] = ()
    allowed_hosts: Annotated[
        tuple[Annotated[str, Meta(max_length=253, pattern=HOST_PATTERN)], ...],
        Meta(
            max_length=64,
            description='DNS names, in lower case, that webhooks may be reached at by `url`. "*.example.com" is every'
            " name below example.com, of any number of labels. All addresses of a name must be public, or in"
            " allowedCidrs.",
        ),
    ] = ()
    issuers: Annotated[
        tuple[Annotated[str, Meta(max_length=512, pattern=ISSUER_PATTERN)], ...],
        Meta(
            max_length=MOST_ISSUERS,
            description="URLs of OIDC providers, whose hosts count as allowedHosts. A DedicatedCluster has those of its"
            " template here.",
        ),
    ] = ()
