"""Which control planes their clients reach: none of a suspended tenant. The glue.

The place refuses the clients, because an administrator inside can bind itself once more, keep tokens of
ServiceAccounts, or refuse the operator's writes by a policy. The binding inside is the second line.
"""

from __future__ import annotations

import logging

from tenantry.api import reasons
from tenantry.api.errors import TenantryError
from tenantry.engine.plan import Blocked
from tenantry.hosting.placement import Placement

log = logging.getLogger(__name__)


class ClientAccess:
    """Opens and closes control planes to their clients.

    Args:
        placement: Where they run.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        # By uid: what the place has confirmed to this operator.
        self._confirmed: dict[str, bool] = {}

    async def bring(self, uid: str, *, is_open: bool) -> Blocked | None:
        """Open or close a control plane; return what to report if the place does not confirm it.

        Args:
            uid: The uid of the control plane.
            is_open: Whether users have access: their tenant is not suspended.
        """
        if self._confirmed.get(uid) is is_open:
            return None
        self._confirmed.pop(uid, None)
        try:
            await self._placement.open(uid, is_open=is_open)
        except TenantryError as error:
            log.warning("a control plane is not closed or opened", extra={"uid": uid, "error": str(error)})
            wanted = "let in again" if is_open else "shut out while the tenant is suspended"
            return Blocked(reason=reasons.NOT_PLACED, message=f"its clients cannot be {wanted}: {error}", passing=True)
        self._confirmed[uid] = is_open
        return None

    def forget(self, uid: str) -> None:
        """Drop what is known of a control plane that is deleted."""
        self._confirmed.pop(uid, None)
