"""The addresses and the DNS domain inside a VirtualControlPlane with nodes of its own."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from tenantry.api.crd import Rule
from tenantry.api.model import Model
from tenantry.api.names import DNS_LABEL

DEFAULT_DOMAIN = "cluster.local"

NODE_PREFIX = 24
"""The prefix length of the pod range of one node."""

WIDEST, NARROWEST = 12, 28
"""Prefix lengths of a range of Services: the API server refuses wider ones, and DNS has the tenth address."""

WIDEST_PODS = 8

_MAX_CIDR = 18
_LABEL = DNS_LABEL.removeprefix("^").removesuffix("$")
_DOMAIN = rf"^({_LABEL}([.]{_LABEL})*)?$"


_FIELDS = ("podRange", "serviceRange", "dnsDomain")

NETWORK_RULE = Rule(
    # Of the spec: a rule of the field is not evaluated when the field is added or removed.
    # Without `orValue`, whose values have no length that the API server knows: the rule would be too expensive for it.
    " && ".join(
        f"(has(self.network) && has(self.network.{each}) ? self.network.{each} : '')"
        f" == (has(oldSelf.network) && has(oldSelf.network.{each}) ? oldSelf.network.{each} : '')"
        for each in _FIELDS
    ),
    "must not change: create another object with other ranges, and restore a snapshot there",
    field="network",
)
"""Of what has `network`."""

NO_NETWORK = " && ".join(
    f"(!has(self.network) || !has(self.network.{each}) || self.network.{each} == '')" for each in _FIELDS
)
"""CEL: the field `network` sets nothing."""


def _range(field: str, widest: int, narrowest: int) -> Rule:
    value = f"self.{field}"
    ipv4 = f"cidr({value}).ip().family() == 4"
    length = f"cidr({value}).prefixLength() >= {widest} && cidr({value}).prefixLength() <= {narrowest}"
    return Rule(
        f"!has({value}) || {value} == '' || (isCIDR({value}) && string(cidr({value}).masked()) == {value}"
        f" && {ipv4} && {length})",
        f"must be an IPv4 range of /{widest} to /{narrowest} without host bits, as in 10.64.0.0/16",
        field=field,
    )


class PlaneNetwork(Model, frozen=True, kw_only=True):
    """The addresses and the DNS domain of a cluster."""

    validations: ClassVar[tuple[Rule, ...]] = (
        _range("podRange", WIDEST_PODS, NODE_PREFIX),
        _range("serviceRange", WIDEST, NARROWEST),
        Rule(
            "!has(self.podRange) || !has(self.serviceRange) || !isCIDR(self.podRange) || !isCIDR(self.serviceRange)"
            " || (!cidr(self.podRange).containsCIDR(self.serviceRange)"
            " && !cidr(self.serviceRange).containsCIDR(self.podRange))",
            "must not overlap serviceRange: choose ranges without a common address",
            field="podRange",
            told="self.podRange + ' must not overlap serviceRange, which is ' + self.serviceRange + ': choose ranges"
            " without a common address'",
        ),
    )

    pod_range: Annotated[
        str,
        Meta(
            max_length=_MAX_CIDR,
            description=f"The addresses of pods, in IPv4: each node has a /{NODE_PREFIX} of them. Without it, the place"
            " chooses. On a machine with real nodes, only 10.112.0.0/17, 10.113.0.0/17 and so on, to 10.127.0.0/17, can"
            " be chosen.",
        ),
    ] = ""
    service_range: Annotated[
        str,
        Meta(
            max_length=_MAX_CIDR,
            description="The addresses of Services, in IPv4; DNS has the tenth. Without it, the range of the host.",
        ),
    ] = ""
    dns_domain: Annotated[
        str,
        Meta(
            max_length=63,
            pattern=_DOMAIN,
            description=f"The DNS domain of Services and pods. Without it, {DEFAULT_DOMAIN}.",
        ),
    ] = ""


Network = Annotated[
    PlaneNetwork,
    Meta(description="The addresses of pods and Services inside, and the DNS domain; it must not change."),
]
"""The field of a control plane, and of a cluster that has one."""
