"""The content of a NodeView: what the programs of a contributed node need of the cluster. Pure.

::

    pods, namespaces, nodes, NetworkPolicies ─► Compiler ─────┐
    Services and EndpointSlices ─► those that matter ─────────┴─► Content ─► compressed JSON ─► NodeView of the node

The certificate of a contributed node reads no other object of tenants, except the pods that run there (the Node
authorizer of Kubernetes). The view names no pod of other nodes. It has their addresses, if NetworkPolicies or Services
of the node's own pods select them.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import zlib

import msgspec

from tenantry.api.model import Json, Model
from tenantry.api.nodeview import NodeViewSpec
from tenantry.world.netpol.compile import PodRules


class Content(Model, frozen=True, kw_only=True):
    """What the programs of a node need of the cluster.

    Args:
        rules: The part of its nftables table that the operator compiles.
        services: The Services that its pods reach, with the fields that kube-proxy reads.
        endpoint_slices: The endpoints of these, likewise.
    """

    rules: PodRules = PodRules()
    services: tuple[Json, ...] = ()
    endpoint_slices: tuple[Json, ...] = ()


_content = msgspec.json.Decoder(Content)


def encoded(found: Content) -> NodeViewSpec:
    """Return the spec of a view; equal contents have equal specs, so that an unchanged view needs no write."""
    # Keys in order and no time, or equal contents would differ.
    data = msgspec.json.encode(found, order="deterministic")
    text = base64.b64encode(gzip.compress(data, 6, mtime=0)).decode()
    return NodeViewSpec(digest=hashlib.sha256(data).hexdigest(), content=text)


def decoded(spec: NodeViewSpec) -> Content:
    """Return the content of a view.

    Raises:
        msgspec.MsgspecError: It cannot be read.
    """
    try:
        return _content.decode(gzip.decompress(base64.b64decode(spec.content, validate=True)))
    except (OSError, EOFError, binascii.Error, zlib.error) as error:
        raise msgspec.DecodeError(f"spec.content is not compressed JSON in Base64: {error}") from error
