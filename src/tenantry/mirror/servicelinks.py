"""The variables by which containers find the Services of their namespace.

    upper Services of the namespace ─► variables ─► env of the containers of the lower pod, as it is created

kubelet would give variables of the lower Services, which have other names and are of all upper namespaces.

Sources: Kubernetes, "Service" (Environment variables); k8s.io/kubernetes/pkg/kubelet/envvars.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tenantry.api.model import Json
from tenantry.engine.cluster import Cluster, Watch
from tenantry.mirror.kinds import serviceaddresses, services
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import items, part
from tenantry.mirror.things import Thing
from tenantry.mirror.upperobjects import UpperObjects

MOST_SERVICES = 40
"""With more Services in its namespace, a pod has no variables of them: each is half a kilobyte in each container."""

MOST_BYTES = 128 * 2**10
"""So much JSON of Services is read for a pod: one of them may have thousands of ports, and each has four variables."""

SETTLING_SECONDS = 10.0
"""How long a pod waits for the addresses of the Services of its namespace."""

_BY_NAMESPACE = "namespace"
"""The index of upper Services by their namespace."""


def variables(found: Iterable[Json]) -> dict[str, str]:
    """Return the variables of Services, in the order of the Services: name to value.

    Args:
        found: The Services; one without an address has no variables.
    """
    named: dict[str, str] = {}
    for each in found:
        spec = part(each, "spec")
        address, ports = str(spec.get("clusterIP") or "None"), items(spec, "ports")
        if address == "None" or not ports:
            continue
        prefix = _words(str(part(each, "metadata").get("name")))
        named[f"{prefix}_SERVICE_HOST"] = address
        named[f"{prefix}_SERVICE_PORT"] = str(ports[0].get("port"))
        for port in ports:
            if port.get("name"):
                named[f"{prefix}_SERVICE_PORT_{_words(str(port['name']))}"] = str(port.get("port"))
        for index, port in enumerate(ports):
            named |= _of_port(prefix, address, port, is_first=not index)
    return named


def _of_port(prefix: str, address: str, port: Json, *, is_first: bool) -> dict[str, str]:
    """Return the variables of a port in the form of Docker's links."""
    number, protocol = str(port.get("port")), str(port.get("protocol") or "TCP")
    host = f"[{address}]" if ":" in address else address
    url = f"{protocol.lower()}://{host}:{number}"
    link = f"{prefix}_PORT_{number}_{protocol}"
    first = {f"{prefix}_PORT": url} if is_first else {}
    return {
        **first,
        link: url,
        f"{link}_PROTO": protocol.lower(),
        f"{link}_PORT": number,
        f"{link}_ADDR": address,
    }


def _words(name: str) -> str:
    return name.replace("-", "_").upper()


class ServiceLinks:
    """The variables of the Services of each namespace of one upper side.

    Args:
        profile: The configuration.
        upper: The upper cluster.
        lower: The lower cluster.
        upper_services: The Services of the upper cluster.
    """

    def __init__(self, profile: Profile, upper: Cluster, lower: Cluster, upper_services: UpperObjects) -> None:
        self._profile = profile
        self._upper = upper
        self._lower = lower
        self._services = upper_services
        # By key of a Service that has not the address of its lower one: since when.
        self._unsettled: dict[str, float] = {}

    def watch(self) -> Watch:
        """Return the watch of the Services, which wakes nothing: pods that exist keep their variables."""
        return self._services.watch(lambda _: (), {_BY_NAMESPACE: _namespace})

    def of(self, namespace: str) -> Mapping[str, str] | None:
        """Return the variables of a namespace; none with more than `MOST_SERVICES`, or than `MOST_BYTES` of them.

        None while a Service has not the address of its lower one, as after a restore: the address may be that of
        another tenant's Service. A Service that stays so for `SETTLING_SECONDS` has no variables.
        """
        cache = self._upper.cache_of(services.RESOURCE)
        if cache is None or cache.count(_BY_NAMESPACE, namespace) > MOST_SERVICES:
            return {}
        # kubelet adds those of the API server's Service itself.
        all_of_it: list[Thing] = cache.by_index(_BY_NAMESPACE, namespace)
        if sum(len(each.text) for each in all_of_it) > MOST_BYTES:
            return {}
        # Each is decoded once.
        found = {each.key: each.object for each in all_of_it if each.key.split("/") != [*services.API_SERVER]}
        unsettled = {key for key, upper in found.items() if not self._is_settled(key, upper)}
        now = self._upper.clock.monotonic()
        others = {key: since for key, since in self._unsettled.items() if not key.startswith(f"{namespace}/")}
        known = {key: self._unsettled.get(key, now) for key in unsettled}
        self._unsettled = others | known
        if any(now - since < SETTLING_SECONDS for since in known.values()):
            return None
        return variables(upper for key, upper in found.items() if key not in unsettled)

    def _is_settled(self, key: str, upper: Json) -> bool:
        """Return whether a Service has the address of its lower one, if it has any."""
        if serviceaddresses.is_emptied(upper, self._profile.mark(serviceaddresses.MARK)):
            return False
        address = part(upper, "spec").get("clusterIP")
        if not address or address == serviceaddresses.HEADLESS:
            return True
        below = self._profile.lower_key("Service", key)
        cache = self._lower.cache_of(services.RESOURCE)
        lower: Thing | None = cache.get(below) if cache is not None else None
        return lower is not None and lower.spec.get("clusterIP") == address


def _namespace(found: Thing) -> Iterable[str]:
    return [found.key.partition("/")[0]]
