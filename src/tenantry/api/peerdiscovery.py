"""What is known of a cluster that was discovered: it grants nothing, and pins what an invitation may say later.

Source: Kubernetes, "kubeadm join" (the digest of a certificate authority, `--discovery-token-ca-cert-hash`).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tenantry.api.model import Model
from tenantry.api.names import SERVER_PATTERN
from tenantry.api.times import Instant

DIGEST_PATTERN = r"^sha256:[0-9a-f]{64}$"

KEEP_SECONDS = 3600
"""How long a discovered cluster is kept that is not used."""

MOST_DISCOVERED = 100
"""How many clusters may be known that are only discovered."""


class PeerDiscovery(Model, frozen=True, kw_only=True):
    """Where a cluster was found, and which one it is. Untrusted, but for the digests that an administrator gives."""

    server: Annotated[str, Meta(max_length=512, pattern=SERVER_PATTERN, description="The URL of its API server.")]
    ca_digests: Annotated[
        tuple[Annotated[str, Meta(max_length=71, pattern=DIGEST_PATTERN)], ...],
        Meta(
            min_length=1,
            max_length=4,
            description="The SHA-256 digests of the public keys of its authorities, as in sha256:0123…. An invitation"
            " with any other authority is refused.",
        ),
    ]
    cluster_id: Annotated[
        str,
        Meta(
            max_length=64,
            description="The uid of its namespace kube-system; an invitation of another cluster is refused. Empty:"
            " any.",
        ),
    ] = ""
    source: Annotated[
        str, Meta(max_length=253, description="The domain whose DNS records name it; empty: an administrator.")
    ] = ""
    seen: Annotated[
        Instant,
        Meta(
            min_length=1,
            description="When it was found. An hour later, a PeerCluster that has no other half is deleted.",
        ),
    ]
