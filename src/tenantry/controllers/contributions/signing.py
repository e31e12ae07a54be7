"""Whether a contributed node gets the certificate that it asks for: pure.

Source: Kubernetes, "Certificates and Certificate Signing Requests", "TLS bootstrapping".
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from tenantry.api.contribution import PREFIX, node_of
from tenantry.api.signing import BOOTSTRAP, CLIENT, NODE, NODES_GROUP, SERVING, SigningRequest
from tenantry.controllers import signingrequests
from tenantry.engine.plan import Plan

_NODES = frozenset({NODES_GROUP})


def concerned(found: SigningRequest) -> str:
    """Return the contributed node of an undecided request; "" if it is for no contributed node."""
    spec = found.spec
    if found.status.conditions:
        return ""
    # The bootstrap token's id names the node, so a token is worth one node and no other.
    if spec.signer_name == CLIENT and spec.username.startswith(BOOTSTRAP):
        return node_of(spec.username.removeprefix(BOOTSTRAP))
    if spec.signer_name == SERVING and spec.username.startswith(NODE + PREFIX):
        return spec.username.removeprefix(NODE)
    return ""


def may_have(
    found: SigningRequest, addresses: Mapping[str, frozenset[str]], reserved: frozenset[str] = frozenset()
) -> bool:
    """Return whether a node gets the certificate: for its own name and addresses only.

    Args:
        found: An undecided request of the node that `concerned` returns.
        addresses: Of each node, by its name; the nodes report them themselves.
        reserved: The API server's addresses, under which no node serves.
    """
    node = concerned(found)
    asked = signingrequests.requested(found.spec.request)
    if not node or asked is None or asked.name != NODE + node or asked.groups != _NODES:
        return False
    if found.spec.signer_name == CLIENT:
        # The owner of the token may ask again until the node exists.
        return not asked.hosts and node not in addresses
    own = own_addresses(node, addresses, reserved)
    return bool(asked.hosts) and asked.hosts <= own | {node}


def own_addresses(
    node: str, addresses: Mapping[str, frozenset[str]], reserved: frozenset[str] = frozenset()
) -> frozenset[str]:
    """Return the reported addresses of a node that are neither another node's nor the API server's.

    Args:
        node: Its name.
        addresses: See `may_have`.
        reserved: See `may_have`.
    """
    # A node reports its own addresses: one that another node has, too, proves nothing.
    others = frozenset(address for name, known in addresses.items() if name != node for address in known)
    # Addresses of the API server could be reported by a node that wants to impersonate it to pods.
    found = addresses.get(node, frozenset()) - others - reserved
    return frozenset(each for each in found if _is_of_a_node(each))


def approval(found: SigningRequest, node: str) -> Plan:
    """Return the plan that approves a request; another decision, made in between, stands."""
    return signingrequests.approval(found, "Contributed", f"the node {node!r} is contributed")


def _is_of_a_node(address: str) -> bool:
    """Return whether a node may serve under an address; a name, such as a Service's, is no address."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return not (found.is_loopback or found.is_link_local or found.is_multicast or found.is_unspecified)
