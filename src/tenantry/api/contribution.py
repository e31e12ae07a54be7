"""Nodes that their owners contribute: the record that is written before a node joins, and the name of the node.

    contribute   an administrator writes a record into the register and creates a short-lived token
    join         the kubelet requests a certificate with the token; the operator approves it for this one node
                 the operator labels the node from the record, not from what the node reports

The name of the node is derived from the token's id, so that a token admits one node only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from tenantry.api.marks import CONTRIBUTED_BY, DEVICE, LOCATION, OWNER, SYSTEM_NAMESPACE
from tenantry.api.model import KubernetesObject, Resource
from tenantry.api.policyparameters import PREFIX as PARAMETERS
from tenantry.api.policyparameters import PolicyParameters, parameters

PREFIX = "contributed-"
"""Of the names of contributed nodes."""

REGISTER = "tenantry-contributed-nodes"
"""The name of the register in Tenantry's namespace: parameters of policies, with a text for each node.

It holds the records of about 1,500 nodes.
"""

REGISTER_MARK = "contributed-nodes"
"""The value of the register's label `OWN_MARK`."""

BOOTSTRAPPERS = "system:bootstrappers:tenantry"
"""The group of all bootstrap tokens that Tenantry creates."""

TOKEN_ID = "[a-z0-9]{6}"  # noqa: S105 - how one looks
TOKEN = rf"({TOKEN_ID})\.([a-z0-9]{{16}})"

_TEXT = Annotated[str, Meta(max_length=63, pattern=r"^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$")]


_ADDRESS = r"[0-9a-fA-F.:]{2,45}"
_CIDR = rf"{_ADDRESS}/[0-9]{{1,3}}"
Addresses = Annotated[str, Meta(max_length=512, pattern=rf"^({_ADDRESS}(,{_ADDRESS})*)?$")]
_AMOUNT = r"[a-z0-9][a-zA-Z0-9./_-]{0,127}:[0-9][0-9.a-zA-Z]{0,31}"
Capacity = Annotated[str, Meta(max_length=512, pattern=rf"^({_AMOUNT}(,{_AMOUNT})*)?$")]
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
        ended: It was taken back: its name gets no certificate and registers no more.
        capacity: What the node adds to its tenant's quota inside a claim, as in `cpu:4,memory:8Gi`; "" if that was not
            agreed on: a claim of the node is then charged with what the node reports.
    """

    tenant: _TEXT = ""
    owner: _TEXT = ""
    location: _TEXT = ""
    device: _TEXT = ""
    addresses: Addresses = ""
    pod_cidrs: Cidrs = msgspec.field(name="podCidrs", default="")
    ended: bool = False
    capacity: Capacity = ""

    @property
    def agreed_capacity(self) -> dict[str, str]:
        """Return the capacity that was agreed on, as quantities by the names of the node's resources."""
        return {key: value for key, _, value in (each.partition(":") for each in self.capacity.split(",")) if key}

    @property
    def ranges(self) -> tuple[str, ...]:
        """Return the ranges of its pods."""
        return tuple(each for each in self.pod_cidrs.split(",") if each)

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of the node."""
        pairs = {CONTRIBUTED_BY: self.tenant, OWNER: self.owner, LOCATION: self.location, DEVICE: self.device}
        return {key: value for key, value in pairs.items() if value}


class EarlierRecord(KubernetesObject, frozen=True, kw_only=True):
    """The ConfigMap in which earlier versions kept the record of one node."""

    resource: ClassVar[Resource] = Resource("", "v1", "configmaps", "ConfigMap")

    data: dict[str, str] = {}


def node_of(token_id: str) -> str:
    """Return the name of the node that joins with a token."""
    return PREFIX + token_id


def is_contributed(node: str) -> bool:
    """Return whether a name is one of a contributed node."""
    return node.startswith(PREFIX)


def earlier_record_of(node: str) -> str:
    """Return the name of a node's record in earlier versions."""
    return f"contribution-{node.removeprefix(PREFIX)}"


def register(records: Mapping[str, Contribution]) -> PolicyParameters:
    """Return the register with the records of nodes, by their names."""
    texts = {node: text(record) for node, record in records.items()}
    return parameters(REGISTER, SYSTEM_NAMESPACE, REGISTER_MARK, texts)


def key_of(node: str) -> str:
    """Return the key of a node's annotation in the register."""
    return f"{PARAMETERS}{node}"


def change(node: str, what: Contribution | None, version: str = "") -> dict[str, object]:
    """Return the merge patch by which the register has this record of a node.

    Args:
        node: Its name.
        what: The record; None removes it.
        version: The resourceVersion from which the record was read; "" for any. With it, a change is refused if an
            administrator has written the register meanwhile: it could renew a record that has ended.
    """
    meta: dict[str, object] = {"annotations": {key_of(node): None if what is None else text(what)}}
    return {"metadata": {"resourceVersion": version, **meta} if version else meta}


def text(what: Contribution) -> str:
    """Return a record as policies read it: `key=value` with spaces between, without empty values."""
    fields: dict[str, str | bool] = msgspec.to_builtins(what)
    return " ".join(f"{key}={'true' if value is True else value}" for key, value in fields.items() if value)


def recorded(register: PolicyParameters, node: str) -> Contribution | None:
    """Return the record of a node; None if there is none, or none that can be read."""
    return record_of(register.metadata.annotations.get(key_of(node)))


def record_of(found: str | None) -> Contribution | None:
    """Return a record from its text in the register; None for no text, or one that cannot be read."""
    if found is None:
        return None
    try:
        fields = (each.partition("=") for each in found.split(" ") if each)
        return read({key: value for key, _, value in fields})
    except msgspec.ValidationError:
        return None


def read(data: Mapping[str, str]) -> Contribution:
    """Return a record from its fields.

    Raises:
        msgspec.ValidationError: A value cannot be a label value, or is no address.
    """
    return msgspec.convert(dict(data), Contribution, strict=False)
