"""The journal of a change between the API server of the cluster and a control plane of the owners' own (H01)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.model import Model

CONVERTER = "tenantry-converter"
"""The ClusterRole, and the RoleBinding in a namespace, by which the mirror moves the objects of a tenant."""

BRINGER = "tenantry-converter-owners"
"""The RoleBinding by which the mirror has the rights of owners while it moves objects out of a control plane."""

CHILD_BRINGER = "tenantry-converter-parent"
"""The RoleBinding in a child namespace by which the mirror of its parent has the rights of owners there meanwhile."""


class ConversionStep(StrEnum):
    """How far a conversion is."""

    REFUSED = "Refused"
    PREPARING = "Preparing"
    MOVING = "Moving"
    CONVERTED = "Converted"


UNDONE_BY_SPEC = (ConversionStep.REFUSED, ConversionStep.PREPARING)
"""The steps from which a Tenant or Subnamespace returns to what it was when its spec does."""


class Conversion(Model, frozen=True, kw_only=True):
    """The journal of a conversion: an operator that starts goes on from here."""

    to: Annotated[ControlPlaneChoice, Meta(description="What the Tenant or Subnamespace becomes.")]
    step: Annotated[
        ConversionStep,
        Meta(
            description="Refused: nothing has changed, and the message names what cannot move. Preparing: the control"
            " plane starts, or what is inside it is listed. Moving: writes are refused while objects move; this step"
            " ends by itself. Converted: done."
        ),
    ]
    started_at: Annotated[str, Meta(description="When the conversion was requested, in RFC 3339.")] = ""
    closed_at: Annotated[str, Meta(description="Since when writes are refused, in RFC 3339.")] = ""
    begun_at: Annotated[
        str, Meta(description="Since when objects are written to the host, so that a return only goes on, in RFC 3339.")
    ] = ""
    ended_at: Annotated[str, Meta(description="When writes were allowed again, in RFC 3339.")] = ""
    message: Annotated[str, Meta(max_length=4096, description="What happens now, or what cannot move.")] = ""
