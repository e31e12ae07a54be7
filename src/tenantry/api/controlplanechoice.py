"""Which API server the owners of a namespace work with: the host's, or one of their own (H01, H04)."""

from __future__ import annotations

from enum import StrEnum

from tenantry.api.crd import Rule

MAX_NAME = 40
"""The longest name of a Tenant or Subnamespace with a control plane of its own, which has the same name."""


class ControlPlaneChoice(StrEnum):
    """With which API server the owners of a namespace work."""

    SHARED = "Shared"
    VIRTUAL = "Virtual"
    DEDICATED = "Dedicated"


_OLD, _NEW = "oldSelf.spec.isolation.controlPlane", "self.spec.isolation.controlPlane"
_JOURNAL = "oldSelf.?status.?conversion.?step.orValue('')"

CONVERTED = Rule(
    f"{_OLD} == {_NEW} || {_JOURNAL} != 'Moving'",
    "must not change while objects move: status.conversion reports the progress",
    field="spec.isolation.controlPlane",
)
"""The transition rule of a Tenant or Subnamespace; see `conversion`."""

FIXED = Rule(
    f"({_OLD} == 'Dedicated') == ({_NEW} == 'Dedicated')",
    "must not change from or to Dedicated: create another Tenant",
    field="spec.isolation.controlPlane",
)
"""The transition rule of a Tenant beside `CONVERTED`: no objects are moved into a cluster with nodes of its own."""

NOT_OF_A_CHILD = (
    "must not be Dedicated: only a Tenant has a cluster of its own; create a DedicatedCluster in the child namespace"
)
"""What is told of a Subnamespace."""

IS_VIRTUAL = "self.spec.isolation.controlPlane == 'Virtual'"
"""CEL: an object whose `spec.isolation` has its defaults has a control plane of its own."""

TOO_LONG = f"must have at most {MAX_NAME} characters if spec.isolation.controlPlane is Virtual"

SHORT = Rule(f"!({IS_VIRTUAL}) || size(self.metadata.name) <= {MAX_NAME}", TOO_LONG, field="metadata.name")
"""The VirtualControlPlane has the name of the object."""
