"""What the operator keeps inside a control plane with nodes of its own: add-ons, each by a mode."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from tenantry.api.crd import list_map
from tenantry.api.model import Model


class AddOnName(StrEnum):
    """The add-ons."""

    CORE_DNS = "CoreDNS"
    NETWORK_POLICY = "NetworkPolicy"
    RUNTIME_CLASSES = "RuntimeClasses"
    STORAGE = "Storage"


class AddOnMode(StrEnum):
    """What the operator does about the objects of an add-on."""

    MANAGED = "Managed"
    ONCE = "Once"
    NONE = "None"


class ClusterAddOn(Model, frozen=True, kw_only=True):
    """How an add-on is kept."""

    name: Annotated[
        AddOnName,
        Meta(
            description="CoreDNS: names of Services and pods. NetworkPolicy: the rights of the agent on each node."
            " RuntimeClasses: one for each runtime of the nodes. Storage: the default StorageClass."
        ),
    ]
    mode: Annotated[
        AddOnMode,
        Meta(
            description="Managed: its objects are brought back when they are changed or deleted inside. Once: they are"
            " created, and then belong to the users. None: they are not created, and those that are there stay."
        ),
    ] = AddOnMode.MANAGED


AddOns = Annotated[
    tuple[ClusterAddOn, ...],
    Meta(
        max_length=len(AddOnName),
        description="How objects that the operator keeps inside the cluster are kept. Add-ons that are not listed are"
        " Managed. The rights by which nodes join are always kept.",
        extra_json_schema=list_map("name"),
    ),
]


def mode_of(given: tuple[ClusterAddOn, ...], name: AddOnName) -> AddOnMode:
    """Return the mode of an add-on."""
    return next((each.mode for each in given if each.name is name), AddOnMode.MANAGED)
