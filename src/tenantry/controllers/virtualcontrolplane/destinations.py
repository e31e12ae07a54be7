"""Where the outgoing connections of a control plane may go: to its own pods, nodes and Services, and to `spec.egress`.

kube-apiserver dials an endpoint of a Service itself if a webhook or an APIService names the Service
(--enable-aggregator-routing). The gate sees the address of a Service only if a webhook has it in its URL. The gate then
does what kube-proxy does on nodes: it selects a ready pod of the Service.

Source: k8s.io/kubernetes, cmd/kube-apiserver/app, `buildServiceResolver`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence

from tenantry.api.model import Json, object_key
from tenantry.api.virtualcontrolplane import PREFIX
from tenantry.engine.cache import Cache
from tenantry.engine.cluster import Cluster
from tenantry.hosting.destinations import Destination, Direct, Kubelet, Outside, Refused
from tenantry.hosting.outside import OutsideRule, canonical
from tenantry.mirror import things
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.endpoints import BY_ADDRESS, addresses_of
from tenantry.mirror.kinds.services import RESOURCE as SERVICES
from tenantry.mirror.nodes import KUBELET_PORT
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import items, part
from tenantry.mirror.things import NODES, PODS, Thing
from tenantry.mirror.uppernodes import UpperNodes

BY_OWNER = "owner"
"""Lower pods, by the uid of their control plane."""

TCP = "TCP"


def owner_of(pod: CachedPod, prefix: str = PREFIX) -> Iterable[str]:
    """Return the uid of the control plane that a lower pod names in its marks."""
    found = part(pod.meta, "labels").get(f"{prefix}/owner")
    return [str(found)] if found else ()


_MIRRORED = "is not a running pod or a Service of this control plane"


def beyond(host: str, port: int, rule: OutsideRule, lacks: str) -> Destination:
    """Return the destination of a host that is not in the cluster.

    Args:
        host: The host.
        port: The port.
        rule: For hosts outside of the cluster.
        lacks: What an address that is refused is not.
    """
    reason = rule.refusal_of_host(host)
    if reason:
        is_name = canonical(host) is None
        return Refused(reason=reason if is_name else f"{host}:{port} {lacks}; {reason}")
    return Outside(host=host, port=port)


class Destinations:
    """The rule of one control plane.

    Args:
        profile: How its pods are mirrored.
        upper: Its own pods.
        lower: The mirrored pods of all control planes, indexed by `BY_ADDRESS` and `BY_OWNER`.
        services: The mirrored Services of all control planes, indexed by `BY_ADDRESS`.
        nodes: Its nodes.
        outside: Returns the rule for hosts outside of the cluster.
        choose: Selects one of the pods of a Service.
    """

    def __init__(  # noqa: PLR0917 - what it reads
        self,
        profile: Profile,
        upper: Cache[CachedPod],
        lower: Cache[CachedPod],
        services: Cache[Thing],
        nodes: UpperNodes,
        outside: Callable[[], OutsideRule],
        *,
        choose: Callable[[Sequence[Direct]], Direct] = random.choice,
    ) -> None:
        self._profile = profile
        self._upper = upper
        self._lower = lower
        self._services = services
        self._nodes = nodes
        self._outside = outside
        self._choose = choose
        self.settled = asyncio.Event()
        """Set at the end of `settle`."""

    async def settle(self, upper: Cluster, lower: Cluster) -> None:
        """Wait until nodes, pods and Services are known, and the nodes' addresses are in the gate's certificate.

        Args:
            upper: The cluster of the control plane.
            lower: The cluster of the mirrored objects.
        """
        await upper.listed(NODES, PODS)
        await lower.listed(PODS, SERVICES)
        await self._nodes.notice()
        self.settled.set()

    def decide(self, host: str, port: int) -> Destination:
        """Return the destination of a host and a port."""
        node = self._nodes.at(host)
        if node:
            if port != KUBELET_PORT:
                return Refused(reason=f"{host}:{port} is a node, of which only the kubelet is reached")
            return Kubelet(node=node)
        if self._is_own_pod(host):
            return Direct(address=host, port=port)
        service = next((each for each in self._services.by_index(BY_ADDRESS, host) if self._is_ours(each)), None)
        if service is not None:
            return self._behind(service, port)
        if host.endswith((".svc", ".svc.cluster.local")):
            return Refused(reason=f"{host} is the name of a Service: use `service` in place of `url`")
        return beyond(host, port, self._outside(), _MIRRORED)

    def _is_ours(self, thing: Thing | CachedPod) -> bool:
        return things.is_of(self._profile, thing.key, thing.meta.get("labels"))

    def _is_own_pod(self, address: str) -> bool:
        found = self._lower.by_index(BY_ADDRESS, address)
        return bool(found) and all(map(self._is_ours, found))

    def _behind(self, service: Thing, port: int) -> Destination:
        """Return a ready pod of a Service, at the target of a port."""
        name = things.upper_key(self._profile, service.meta.get("annotations"))
        entry = next((each for each in items(service.spec, "ports") if _is(each, port)), None)
        if entry is None:
            return Refused(reason=f"Service {name} has no TCP port {port}")
        selector = part(service.spec, "selector")
        if not selector:
            return Refused(reason=f"Service {name} has no selector: use `service` in place of `url`")
        found = [
            Direct(address=address, port=target)
            for pod in self._lower.by_index(BY_OWNER, self._profile.owner_uid)
            if self._is_ours(pod) and selector.items() <= part(pod.meta, "labels").items() and _is_ready(pod, service)
            for target in _targets(pod, entry)
            for address in addresses_of(pod)
            if self._is_own_pod(address)
        ]
        return self._choose(found) if found else Refused(reason=f"Service {name} has no ready pod with port {port}")

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


def _is(entry: Json, port: int) -> bool:
    return entry.get("port") == port and entry.get("protocol", TCP) == TCP


def _is_ready(pod: CachedPod, service: Thing) -> bool:
    if service.spec.get("publishNotReadyAddresses"):
        return True
    conditions = items(pod.status, "conditions")
    is_ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    return is_ready and not pod.is_deleting


def _targets(pod: CachedPod, entry: Json) -> list[int]:
    """Return the port of a pod that a port of a Service leads to; none if the pod does not have its name."""
    target = entry.get("targetPort", entry.get("port"))
    if isinstance(target, int):
        return [target or int(entry["port"])]
    containers = [*items(pod.spec, "containers"), *items(pod.spec, "initContainers")]
    ports = [each for container in containers for each in items(container, "ports")]
    named = (each for each in ports if each.get("name") == target and each.get("protocol", TCP) == TCP)
    return [int(each["containerPort"]) for each in named][:1]
