"""The tunnel by which a home reaches a peer that it cannot connect to: fields of the halves of a PeerCluster."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from tenantry.api.marks import GROUP
from tenantry.api.model import Model
from tenantry.api.names import SERVER_PATTERN

TUNNEL_SUFFIX = "-tunnel"

TUNNEL_AUDIENCE = f"tunnel.federation.{GROUP}"
"""For whom the tokens of tunnels are, which no API server accepts; and the name in the certificate of tunnels."""

TUNNEL_PATH = "/tunnel"
"""The path at which a peer opens its tunnel."""

TUNNEL_SECRET = f"default{TUNNEL_SUFFIX}"
"""The Secret with the certificate of the port for tunnels: no PeerCluster has the name `default`."""


def tunnel_name(peer: str) -> str:
    """Return the name of the ServiceAccount at home, and of the Secret at the peer, with which a tunnel is opened."""
    return f"{peer}{TUNNEL_SUFFIX}"


class Dial(StrEnum):
    """Which of two clusters connects to the other one."""

    HOME = "Home"
    PEER = "Peer"


class GuestTunnel(Model, frozen=True, kw_only=True):
    """The tunnel by which a home reaches this cluster without connecting to it."""

    server: Annotated[
        str,
        Meta(
            max_length=512,
            pattern=SERVER_PATTERN,
            description="The URL of the home's port for tunnels, as in https://home.example.com:6447.",
        ),
    ]
    ca: Annotated[str, Meta(min_length=1, max_length=65536, description="The certificate of this port, in PEM.")]
    credentials_secret_name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=253,
            description="The Secret in the namespace tenantry-peers whose key `token` is a token of the ServiceAccount"
            " NAME-tunnel of the home. The home replaces it before it expires.",
        ),
    ]
    file: Annotated[
        str,
        Meta(
            max_length=64,
            description="Which file of the home the token is from. Another value makes the operator open the tunnel"
            " again at once, with the token that the Secret has now.",
        ),
    ] = ""
