"""What a conversion is about: a tenant's core namespace, or the child namespace of a Subnamespace. Pure."""

from __future__ import annotations

import msgspec

from tenantry.api.subnamespace import Mode, Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.controllers import controlplane


class ConversionScope(msgspec.Struct, frozen=True, kw_only=True):
    """The Tenant or Subnamespace whose objects move, all of them in one namespace of the host.

    Args:
        owner: The Tenant or Subnamespace.
        is_suspended: Whether the tenant of the tree is suspended, or its lease has ended.
    """

    owner: Tenant | Subnamespace
    is_suspended: bool = False

    @property
    def namespace(self) -> str:
        """Return its namespace, which has the same name inside the control plane."""
        return controlplane.namespace_of(self.owner)

    @property
    def plane_key(self) -> str:
        """Return the key of its VirtualControlPlane."""
        return controlplane.plane_key(self.owner)

    @property
    def is_blind(self) -> bool:
        """Return whether users who read the journal may not see what is in the namespace (E05)."""
        return isinstance(self.owner, Subnamespace) and self.owner.spec.mode is Mode.SUBTENANT
