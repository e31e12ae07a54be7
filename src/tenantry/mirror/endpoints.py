"""EndpointSlices that users write for a Service without a selector, as labels of their own lower pods. Pure.

No address of users goes down. The lower Service selects a label, the mirror gives this label to the lower pods that the
upper EndpointSlices name by their addresses, and the lower cluster finds the addresses itself. So a lower Service leads
to pods of its own owner only, whatever the upper side says, and no address stays in it when a pod ends.

    upper  Service db, no selector   EndpointSlice db-1: 10.1.0.7, port pg 5433
    lower  Service db-<16 hex>, selector <prefix>/owner: uid, <prefix>/serves-<16 hex>: ""   targetPort of pg: 5433
           the pod of address 10.1.0.7 gets the label <prefix>/serves-<16 hex>

Source: Kubernetes, "Service" (Services without selectors), "EndpointSlices".
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import islice

import msgspec

from tenantry.api.contribution import is_contributed
from tenantry.api.model import Json, Resource, object_key
from tenantry.api.wording import shortened
from tenantry.mirror import names
from tenantry.mirror.cachedpods import CachedPod, Kept
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import items, part

SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
SERVICE_NAME = "kubernetes.io/service-name"
WRITTEN = {
    "labelSelector": f"{SERVICE_NAME},endpointslice.kubernetes.io/managed-by!=endpointslice-controller.k8s.io",
}
"""The selectors of those that Kubernetes has not made for a Service with a selector."""

BY_ADDRESS = "address"
"""Lower pods, by each of their addresses."""

BY_LABEL = "serves"
"""Lower pods, by each label that makes them endpoints of a Service."""

BY_SERVICE = "service"
"""Upper EndpointSlices, by the key of their Service."""

BY_ENDPOINT = "endpoint"
"""Upper EndpointSlices, by each address that they name."""

MOST_SERVICES = 100
"""How many Services without a selector may have one pod as an endpoint: each is a label of the pod."""

MOST_SLICES = 20
"""How many EndpointSlices with ready addresses count for one Service."""

MOST_ADDRESSES = 100
"""How many ready addresses of an EndpointSlice count: an index entry of each takes up to 30 times its bytes."""

MOST_PORTS = 100
"""How many ports an EndpointSlice may have."""

_SERVES = "serves-"
_BY_NAME = "ExternalName"
_TCP = "TCP"

Ports = Mapping[tuple[str, str], int]
"""By name and protocol of a port: its number."""


class _Metadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str
    namespace: str = ""
    resource_version: str = "0"
    labels: dict[str, str] | None = None


class _Conditions(msgspec.Struct, frozen=True, gc=False):
    # Unset means ready.
    ready: bool | None = None


class _Endpoint(msgspec.Struct, frozen=True, gc=False):
    addresses: list[str] | None = None
    conditions: _Conditions | None = None


class _Port(msgspec.Struct, frozen=True, gc=False):
    name: str | None = None
    protocol: str | None = None
    port: int | None = None


class _Slice(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata
    endpoints: list[_Endpoint] | None = None
    ports: list[_Port] | None = None


class _Headed(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata


_slice = msgspec.json.Decoder(_Slice)
_headed = msgspec.json.Decoder(_Headed)


class WrittenSlice(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What counts of an EndpointSlice, which is read once: it may have 256 KiB, and a Service a thousand of them.

    Args:
        key: `namespace/name`.
        version: The resourceVersion.
        kept: How much of it is here; without the rest it has no Service.
        service: The key of its Service; "" for none.
        ports: Its ports, at most `MOST_PORTS`.
        addresses: Those that are ready, in order, at most `MOST_ADDRESSES`.
        refused: Why some of it has no effect; "" if all has.
    """

    key: str
    version: int
    kept: Kept = Kept.WHOLE
    service: str = ""
    ports: Ports = msgspec.field(default_factory=dict[tuple[str, str], int])
    addresses: tuple[str, ...] = ()
    refused: str = ""


class WrittenEndpoints(msgspec.Struct, frozen=True, kw_only=True):
    """What the EndpointSlices of one Service say together.

    Args:
        ports: The ports of the endpoints.
        addresses: Those that are ready, in order.
        refused: Why some of the slices have no effect; "" if all have.
    """

    ports: Ports
    addresses: Sequence[str]
    refused: str = ""


NONE = WrittenEndpoints(ports={}, addresses=())


def label(profile: Profile, namespace: str, service: str) -> str:
    """Return the label that makes lower pods endpoints of an upper Service without a selector."""
    lower = profile.lower_name("Service", namespace, service)
    return profile.mark(_SERVES + lower[-names.DIGITS :])


def is_written(spec: Json) -> bool:
    """Return whether users write the endpoints of an upper Service themselves."""
    return not spec.get("selector") and spec.get("type") != _BY_NAME


def seen(data: msgspec.Raw, kept: Kept = Kept.WHOLE) -> WrittenSlice:
    """Return an EndpointSlice as it is cached.

    Args:
        data: The object.
        kept: How much of it is to be kept.
    """
    if kept is not Kept.WHOLE:
        meta = _headed.decode(data).metadata
        return WrittenSlice(key=object_key(meta.namespace, meta.name), version=int(meta.resource_version), kept=kept)
    found = _slice.decode(data)
    meta, ports = found.metadata, found.ports or []
    addresses = tuple(islice(_ready(found), MOST_ADDRESSES + 1))
    refused = ""
    if len(ports) > MOST_PORTS:
        ports, addresses, refused = [], (), f"it may have at most {MOST_PORTS} ports: divide it"
    elif len(addresses) > MOST_ADDRESSES:
        refused = f"only its first {MOST_ADDRESSES} addresses have an effect: divide it"
    service = (meta.labels or {}).get(SERVICE_NAME)
    return WrittenSlice(
        key=object_key(meta.namespace, meta.name),
        version=int(meta.resource_version),
        service=object_key(meta.namespace, service) if service else "",
        ports={(each.name or "", each.protocol or _TCP): each.port for each in ports if each.port is not None},
        addresses=addresses[:MOST_ADDRESSES],
        refused=refused,
    )


def _ready(found: _Slice) -> Iterable[str]:
    for endpoint in found.endpoints or ():
        if endpoint.conditions is None or endpoint.conditions.ready is not False:
            for each in endpoint.addresses or ():
                if each:
                    yield canonical(each)


def written(slices: Iterable[WrittenSlice]) -> WrittenEndpoints:
    """Return what EndpointSlices of one Service say together.

    Args:
        slices: In the order in which they count.
    """
    ports: Ports | None = None
    addresses, refused = dict[str, None](), ""
    used = [each for each in slices if each.addresses or each.refused]
    for each in used[:MOST_SLICES]:
        name = each.key.partition("/")[2]
        if each.refused:
            refused = f"EndpointSlice {name!r}: {each.refused}"
        if not each.addresses:
            continue
        if ports is not None and each.ports != ports:
            # A Service with a selector has one number for each of its ports.
            refused = f"EndpointSlice {name!r} has no effect: all of a Service must have the same ports"
            continue
        ports = each.ports
        addresses |= dict.fromkeys(each.addresses)
    if len(used) > MOST_SLICES:
        rest = shortened([each.key.partition("/")[2] for each in used[MOST_SLICES:]])
        refused = f"EndpointSlices {rest} have no effect: at most {MOST_SLICES} of a Service count"
    return WrittenEndpoints(ports=ports or {}, addresses=tuple(addresses), refused=refused)


def canonical(address: object) -> str:
    """Return an address as Kubernetes writes those of pods; other texts stay as they are."""
    try:
        return str(ipaddress.ip_address(str(address)))
    except ValueError:
        return str(address)


def lead(spec: Json, slices: Iterable[WrittenSlice], mark: str, profile: Profile) -> None:
    """Have a lower Service lead to the pods that have a label.

    Args:
        spec: That of the Service, without a selector; it is changed.
        slices: The upper EndpointSlices of the Service.
        mark: The label.
        profile: The configuration.
    """
    spec["selector"] = {profile.mark("owner"): profile.owner_uid, mark: ""}
    # Whether an endpoint is ready is in the EndpointSlice: pods that are not have no label.
    spec["publishNotReadyAddresses"] = True
    ports = written(slices).ports
    for port in items(spec, "ports"):
        number = ports.get((port.get("name") or "", port.get("protocol") or _TCP))
        if number is not None:
            port["targetPort"] = number


def foreign(addresses: Sequence[str]) -> str:
    """Return why addresses are no endpoints."""
    return (
        f"{shortened(addresses)} of its EndpointSlices has no effect: only addresses of running pods of this API server"
        " may be endpoints, and not of those in the network of their node"
    )


# -- indexes ----------------------------------------------------------------------------------------


def addresses_of(pod: CachedPod) -> Iterable[str]:
    """Return the addresses of a running pod that are its own.

    A pod in its node's network has none. The kubelet of a contributed node is its owner's, and may name any address: of
    pods of other owners, or of the machine of the mirror.
    """
    if pod.spec.get("hostNetwork") or pod.status.get("phase") != "Running":
        return ()
    if is_contributed(str(pod.spec.get("nodeName", ""))):
        return ()
    return [str(each.get("ip")) for each in items(pod.status, "podIPs")]


@cache
def serving(prefix: str) -> Callable[[CachedPod], Iterable[str]]:
    """Return the function that returns such labels of a pod, for one domain of marks; the same function each time."""
    start = f"{prefix}/{_SERVES}"

    def found(pod: CachedPod) -> Iterable[str]:
        return [key for key in part(pod.meta, "labels") if key.startswith(start)]

    return found


def service_of(slice_: WrittenSlice) -> Iterable[str]:
    """Return the key of the Service of an EndpointSlice; none for one of which only the head is kept."""
    return [slice_.service] if slice_.service else ()


def named(slice_: WrittenSlice) -> Iterable[str]:
    """Return the addresses that an EndpointSlice names."""
    return slice_.addresses


INDEXES = {BY_SERVICE: service_of, BY_ENDPOINT: named}
"""The indexes of upper EndpointSlices."""
