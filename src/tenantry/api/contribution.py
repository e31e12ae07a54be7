"""Nodes that their owners contribute: the record that is written before a node joins, and the name of the node.

    contribute   an administrator writes a record (a ConfigMap) and creates a short-lived token
    join         the kubelet requests a certificate with the token; the operator approves it for this one node
                 the operator labels the node from the record, not from what the node reports

The name of the node is derived from the token's id, so that a token admits one node only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from tenantry.api.marks import CONTRIBUTED_BY, DEVICE, LOCATION, MANAGED_BY, MANAGER, OWNER
from tenantry.api.model import KubernetesObject, ObjectMeta, Resource

PREFIX = "contributed-"
"""Of the names of contributed nodes."""

GROUP = "system:bootstrappers:tenantry"
"""The group of all bootstrap tokens that Tenantry creates."""

TOKEN_ID = "[a-z0-9]{6}"  # noqa: S105 - how one looks
TOKEN = rf"({TOKEN_ID})\.([a-z0-9]{{16}})"

_TEXT = Annotated[str, Meta(max_length=63, pattern=r"^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$")]


_ADDRESS = r"[0-9a-fA-F.:]{2,45}"
_CIDR = rf"{_ADDRESS}/[0-9]{{1,3}}"
Addresses = Annotated[str, Meta(max_length=512, pattern=rf"^({_ADDRESS}(,{_ADDRESS})*)?$")]
Cidrs = Annotated[str, Meta(max_length=512, pattern=rf"^({_CIDR}(,{_CIDR})*)?$")]


class Contribution(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a contributed node. Each field is "" for none; the first four are values of labels of the node.

    Args:
        tenant: The tenant with priority on the node.
        owner: The owner of the machine.
        location: Its location.
        device: Its type.
        addresses: The IP addresses of the node, with commas between.
        pod_cidrs: The ranges of its pods, likewise; "" if a controller of Kubernetes assigns them.
    """

    tenant: _TEXT = ""
    owner: _TEXT = ""
    location: _TEXT = ""
    device: _TEXT = ""
    addresses: Addresses = ""
    pod_cidrs: Cidrs = msgspec.field(name="podCidrs", default="")

    @property
    def ranges(self) -> tuple[str, ...]:
        """Return the ranges of its pods."""
        return tuple(each for each in self.pod_cidrs.split(",") if each)

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of the node."""
        pairs = {CONTRIBUTED_BY: self.tenant, OWNER: self.owner, LOCATION: self.location, DEVICE: self.device}
        return {key: value for key, value in pairs.items() if value}


class Record(KubernetesObject, frozen=True, kw_only=True):
    """The ConfigMap in which it is written down."""

    resource: ClassVar[Resource] = Resource("", "v1", "configmaps", "ConfigMap")

    data: dict[str, str] = {}


def node_of(token_id: str) -> str:
    """Return the name of the node that joins with a token."""
    return PREFIX + token_id


def record_of(node: str) -> str:
    """Return the name of a node's record in Tenantry's namespace; "" if the node is not a contributed one."""
    return f"contribution-{node.removeprefix(PREFIX)}" if node.startswith(PREFIX) else ""


def write(token_id: str, namespace: str, what: Contribution) -> Record:
    """Return the record of a contribution."""
    metadata = ObjectMeta(name=record_of(node_of(token_id)), namespace=namespace, labels={MANAGED_BY: MANAGER})
    return Record(metadata=metadata, data=msgspec.to_builtins(what))


def read(data: Mapping[str, str]) -> Contribution:
    """Return the content of a record.

    Raises:
        msgspec.ValidationError: A value cannot be a label value.
    """
    return msgspec.convert(dict(data), Contribution)
