"""NodeView: what the programs of one contributed node need of the cluster (E19). Tenantry alone writes it."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from tenantry.api.contribution import PREFIX
from tenantry.api.crd import Column, Names
from tenantry.api.marks import GROUP, VERSION
from tenantry.api.model import KEEP, KindAccess, KubernetesObject, Model, Resource

ROLE_PREFIX = "tenantry-view-"
"""Before the name of the node: the ClusterRole and the binding by which a node reads its own view."""

MOST_CHARACTERS = 1_300_000
"""The maximum length of a view; etcd accepts requests of 1.5 MiB (etcd, `--max-request-bytes`)."""


class NodeViewSpec(Model, frozen=True, kw_only=True):
    """A view."""

    digest: Annotated[str, Meta(max_length=64, description="SHA-256 of the content, in hexadecimal digits.")]
    content: Annotated[
        str,
        Meta(
            max_length=MOST_CHARACTERS,
            description="Compiled NetworkPolicies, Services and endpoints: JSON, compressed with gzip, in Base64.",
        ),
    ]


class NodeView(KubernetesObject, frozen=True, kw_only=True):
    """What the programs of a contributed node need: compiled NetworkPolicies, and Services with their endpoints.

    It has the name of the node, whose certificate reads no other view. Tenantry alone writes it.
    """

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "nodeviews", "NodeView", namespaced=False)
    names: ClassVar[Names] = Names(short=("nview",), categories=())
    access: ClassVar[KindAccess] = KindAccess(operator=KEEP)
    validations: ClassVar[tuple[()]] = ()
    columns: ClassVar[tuple[Column, ...]] = (Column("Digest", "string", ".spec.digest", priority=1),)

    spec: NodeViewSpec


def role_of(node: str) -> str:
    """Return the name of the role by which a node reads its view."""
    return ROLE_PREFIX + node


def node_of(role: str) -> str:
    """Return the node of such a role; "" if the role is another one."""
    return role.removeprefix(ROLE_PREFIX) if role.startswith(ROLE_PREFIX + PREFIX) else ""


def earlier_bindings(node: str) -> tuple[str, ...]:
    """Return the names of the bindings by which earlier versions let a contributed node read the whole cluster."""
    return tuple(f"tenantry:{node}:{role}" for role in ("node-proxier", "netpol-agent"))
