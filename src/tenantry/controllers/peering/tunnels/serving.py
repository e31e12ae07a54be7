"""The certificate of the home's port for tunnels: signed by itself, and pinned by each peer.

    Secret default-tunnel ─► the port;  its `tls.crt` ─► PeerTunnel ─► GuestTunnel.ca of the peer

No name in it is that of a host, so that the address of the port can change. To replace it, delete the Secret; peers
then need another file.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import ssl

from cryptography import x509

from tenantry.api.errors import AlreadyExists
from tenantry.api.marks import MANAGED_BY, MANAGER
from tenantry.api.model import Json
from tenantry.api.peercluster import PEERS_NAMESPACE
from tenantry.api.peertunnel import TUNNEL_AUDIENCE, TUNNEL_SECRET
from tenantry.controllers.peering import liveobjects
from tenantry.controllers.peering.liveobjects import SECRETS
from tenantry.engine import request
from tenantry.engine.cluster import Cluster
from tenantry.hosting.selfsigned import self_signed
from tenantry.hosting.tlslistener import server_context

CERTIFICATE, KEY = "tls.crt", "tls.key"

_LIFE = dt.timedelta(days=3650)


async def context(home: Cluster) -> ssl.SSLContext:
    """Return the TLS context of the port, with the certificate of the Secret, which is made if there is none.

    Raises:
        ConfigError: The Secret has no certificate.
        ApiError: The API server refuses, or does not answer.
    """
    found = await liveobjects.find(home, SECRETS, TUNNEL_SECRET)
    if found is None:
        certificate, key = new(home.clock.now())
        data = {CERTIFICATE: certificate, KEY: key}
        value: Json = {
            "metadata": {"name": TUNNEL_SECRET, "namespace": PEERS_NAMESPACE, "labels": {MANAGED_BY: MANAGER}},
            "type": "kubernetes.io/tls",
            "data": {name: base64.b64encode(each).decode() for name, each in data.items()},
        }
        try:
            await home.writer.send(request.create_json(SECRETS, value))
        except AlreadyExists:
            return await context(home)
    else:
        certificate, key = (_part(found, each) for each in (CERTIFICATE, KEY))
    return server_context(certificate, key, f"Secret {TUNNEL_SECRET!r} of namespace {PEERS_NAMESPACE!r}")


async def forget(home: Cluster) -> None:
    """Delete the Secret.

    Raises:
        ApiError: The API server refuses, or does not answer.
    """
    found = await liveobjects.find(home, SECRETS, TUNNEL_SECRET)
    if found is not None:
        await liveobjects.delete(home, SECRETS, found)


def _part(found: Json, key: str) -> bytes:
    data: Json = found.get("data") or {}
    try:
        return base64.b64decode(data.get(key, ""), validate=True)
    except (binascii.Error, TypeError):
        return b""


def new(now: dt.datetime) -> tuple[bytes, bytes]:
    """Return a certificate that has signed itself, and its key, PEM."""
    return self_signed(TUNNEL_AUDIENCE, [x509.DNSName(TUNNEL_AUDIENCE)], now=now, life=_LIFE)
