"""The aggregated API at which nodes open their tunnels: its names and its address. Pure; see `nodetunnels.py`."""

from __future__ import annotations

GROUP, VERSION = "tunnel.tenantry.dev", "v1"
"""Its group and version."""

ADDRESS, PORT = "192.0.0.8", 443
"""Where the gate plays it: an address that no host on earth has (RFC 7600, the IPv4 dummy address)."""

ROOT = f"/apis/{GROUP}/{VERSION}"


def path_of(node: str) -> str:
    """Return the path at which a node opens its tunnel: of the subresource `proxy`, whose requests may last."""
    return f"{ROOT}/nodes/{node}/proxy"
