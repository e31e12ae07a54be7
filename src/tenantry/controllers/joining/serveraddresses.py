"""Whether a machine from outside has an address of the API server that it joins, or of Services: pure.

The kubelet of a machine gets a certificate for its addresses from an authority that clients of the API server trust.
One for an address of the API server would let the owner of the machine take the place of the API server.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from msgspec import UNSET

from tenantry.api.nodehandover import NodeHandover
from tenantry.hosting.noderuntime import NodeEndpoint
from tenantry.hosting.outside import canonical
from tenantry.world.addresses import Network, is_overlapping, is_part, parse, strict


def clash(found: NodeHandover, endpoint: NodeEndpoint, services: str) -> str:
    """Return why a machine must not join with its addresses; "" if it may.

    Args:
        found: Its NodeHandover; one of a machine of the host has addresses that the host has chosen.
        endpoint: Where it joins.
        services: The ranges of Services inside, with commas between them.
    """
    machine = found.spec.contributed
    if machine is UNSET:
        return ""
    path = f"spec.contributed[{found.metadata.name}]"
    server = parse(str(canonical(urlsplit(endpoint.server).hostname or "")))
    ranges = [each for text in services.split(",") if (each := strict(text)) is not None]
    told = (_of_address(text, server, ranges) for text in machine.addresses)
    wrong = next((f".addresses {each}" for each in told if each), "") or _of_pods(machine.pod_range, server, ranges)
    return f"{path}{wrong}: give the machine another one" if wrong else ""


def _of_address(text: str, server: Network | None, services: Iterable[Network]) -> str:
    own = parse(str(canonical(text)))
    if own is None:
        return f"must be IP addresses, and {text!r} is none"
    if own == server:
        return f"must not have {text}, at which machines reach the API server"
    other = next((each for each in services if is_part(own, each)), None)
    return f"must not have {text}, because Services of the cluster have {other}" if other is not None else ""


def _of_pods(text: str, server: Network | None, services: Iterable[Network]) -> str:
    pods = parse(text)
    if pods is None:
        return f".podRange must be a range, and {text!r} is none"
    if server is not None and is_part(server, pods):
        return f".podRange must not have {server.network_address}, at which machines reach the API server"
    other = next((each for each in services if is_overlapping(pods, each)), None)
    return f".podRange {pods} must not overlap {other}, which Services of the cluster have" if other is not None else ""
