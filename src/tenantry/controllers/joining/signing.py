"""Whether a node that was handed over gets a certificate of the control plane that it serves: pure.

    requester                     signer    granted
    system:bootstrap:ID           client    once, for the node that the token is for
    system:node:NAME              client    renewal, for the same name
    system:node:NAME              serving   for its name, and the addresses that the host knows of its machine

Each is for `system:node:NAME` in the group system:nodes alone. Users inside may approve others themselves: they are
administrators of their own cluster, and no address inside is a reason to dial it.

Source: Kubernetes, "Certificates and Certificate Signing Requests", kubernetes.io/kube-apiserver-client-kubelet.
"""

from __future__ import annotations

import datetime as dt

from tenantry.api.nodehandover import NodeHandover
from tenantry.api.signing import BOOTSTRAP, CLIENT, NODE, NODES_GROUP, SERVING, SigningRequest
from tenantry.controllers import signingrequests
from tenantry.controllers.joining.tokens import JoinToken, id_of

_GROUPS = frozenset({NODES_GROUP})
_OPTIONAL = "key encipherment"
"""A usage that only RSA keys need."""

_USAGES = {
    CLIENT: frozenset({"digital signature", "client auth"}),
    SERVING: frozenset({"digital signature", "server auth"}),
}


def is_of(asked: SigningRequest, found: NodeHandover) -> bool:
    """Return whether a request for a certificate of a node concerns a NodeHandover."""
    spec = asked.spec
    if spec.signer_name == CLIENT and spec.username.startswith(BOOTSTRAP):
        return bool(id_of(found)) and spec.username.removeprefix(BOOTSTRAP) == id_of(found)
    return spec.signer_name in _USAGES and spec.username == NODE + found.metadata.name


def is_first(asked: SigningRequest) -> bool:
    """Return whether a request is made with a token."""
    return asked.spec.username.startswith(BOOTSTRAP)


def refusal(
    asked: SigningRequest, found: NodeHandover, token: JoinToken | None, now: dt.datetime, *, has_node: bool
) -> str:
    """Return why a node does not get a certificate; "" if it does.

    Args:
        asked: A request that concerns the NodeHandover.
        found: The NodeHandover, which is not being deleted.
        token: Its token; None if there is no readable record.
        now: The time.
        has_node: Whether there is a Node of the name inside.
    """
    problem = _shape(asked, found)
    return problem or (_of_token(asked, token, now, has_node=has_node) if is_first(asked) else "")


def _shape(asked: SigningRequest, found: NodeHandover) -> str:
    name, spec = found.metadata.name, asked.spec
    wanted = signingrequests.requested(spec.request)
    if wanted is None:
        return "its request cannot be read, or is not signed by its key"
    if wanted.name != NODE + name or wanted.groups != _GROUPS:
        groups = ", ".join(map(repr, sorted(wanted.groups))) or "none"
        return (
            f"it is for {wanted.name!r} in the groups {groups}, and may be for {NODE + name!r} in {NODES_GROUP!r} only"
        )
    if frozenset(spec.usages) - {_OPTIONAL} != _USAGES[spec.signer_name]:
        return f"it may have the usages {', '.join(sorted(_USAGES[spec.signer_name]))} only"
    if spec.signer_name == CLIENT:
        return "it must not have names or addresses" if wanted.hosts else ""
    own = {name, *found.status.addresses}
    others = sorted(wanted.hosts - own)
    if others or not wanted.hosts:
        listed = ", ".join(map(repr, others)) or "none"
        return f"it is for {listed}, and may be for the addresses of this node only: {', '.join(sorted(own))}"
    return ""


def _of_token(asked: SigningRequest, token: JoinToken | None, now: dt.datetime, *, has_node: bool) -> str:
    if token is None:
        return "there is no record of its token any more"
    if token.used and token.used != asked.metadata.uid:
        return "its token was used before, and is worth one certificate"
    if token.is_late(now):
        return "its token was not used in time"
    return "there is a Node of its name already" if has_node and not token.used else ""
