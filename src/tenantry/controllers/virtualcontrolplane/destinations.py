"""Where the outgoing connections of a control plane may go: to its own pods, and to the nodes that they run on."""

from __future__ import annotations

from collections.abc import Iterable

from tenantry.api.contribution import is_contributed
from tenantry.api.model import object_key
from tenantry.engine.cache import Cache
from tenantry.hosting.destinations import Destination, Direct, Kubelet, Refused
from tenantry.mirror import things
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.nodes import KUBELET_PORT
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import items
from tenantry.mirror.things import PODS
from tenantry.mirror.uppernodes import UpperNodes

BY_ADDRESS = "address"
"""Lower pods, by each of their addresses."""


def addresses_of(pod: CachedPod) -> Iterable[str]:
    """Return the addresses of a running pod that are its own.

    A pod in its node's network has none. The kubelet of a contributed node is its owner's, and may name any address: of
    another tenant's pods, or of the machine that the gate runs on.
    """
    if pod.spec.get("hostNetwork") or pod.status.get("phase") != "Running":
        return ()
    if is_contributed(str(pod.spec.get("nodeName", ""))):
        return ()
    return [str(each.get("ip")) for each in items(pod.status, "podIPs")]


class Destinations:
    """The rule of one control plane.

    Args:
        profile: How its pods are mirrored.
        upper: Its own pods.
        lower: The mirrored pods of all control planes, indexed by `BY_ADDRESS`.
        nodes: Its nodes.
    """

    def __init__(self, profile: Profile, upper: Cache[CachedPod], lower: Cache[CachedPod], nodes: UpperNodes) -> None:
        self._profile = profile
        self._upper = upper
        self._lower = lower
        self._nodes = nodes

    def decide(self, host: str, port: int) -> Destination:
        """Return the destination of a host and a port."""
        node = self._nodes.at(host)
        if node:
            if port != KUBELET_PORT:
                return Refused(reason=f"{host}:{port} is a node, of which only the kubelet is reached")
            return Kubelet(node=node)
        found = self._lower.by_index(BY_ADDRESS, host)
        if found and all(things.is_of(self._profile, pod.key, pod.meta.get("labels")) for pod in found):
            return Direct(address=host, port=port)
        return Refused(reason=f"{host}:{port} is not a running pod of this control plane")

    def locate(self, namespace: str, pod: str, node: str) -> tuple[str, str] | None:
        """Return namespace and name on the host of a pod that runs on a node; None for any other."""
        upper = self._upper.get(object_key(namespace, pod))
        if upper is None or upper.spec.get("nodeName") != node:
            return None
        name = self._profile.lower_name(PODS.kind, namespace, pod)
        lower = self._lower.get(object_key(self._profile.namespace, name))
        if lower is None or lower.mark(self._profile, "uid") != upper.uid:
            return None
        return self._profile.namespace, name
