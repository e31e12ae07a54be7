"""What the real nodes of a place can run: pure data."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

DNS_USER = "system:serviceaccount:kube-system:coredns"
"""The user name of CoreDNS, which watches all the time."""

STORAGE_USER = "tenantry:local-storage"
"""The user name of what provisions volumes on real nodes, which watches all the time."""


class NodeRuntime(msgspec.Struct, frozen=True, kw_only=True):
    """What the real nodes of a place have.

    Args:
        handlers: Their runtimes: from the name of a RuntimeClass to its handler.
        dns_image: The image of CoreDNS that they have; "" for none.
        storage_class: The name of the default StorageClass; "" if nothing provisions volumes.
        provisioner: What provisions its volumes.
        storage_user: The user name of the provisioner.
    """

    handlers: Mapping[str, str] = {}
    dns_image: str = ""
    storage_class: str = ""
    provisioner: str = ""
    storage_user: str = ""


class NodeEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where nodes reach the API server of a control plane: a port of its own, at which nothing wakes it.

    Args:
        server: The URL.
        ca: The authorities of the API server, as PEM.
    """

    server: str
    ca: str
