"""Which control planes their clients reach: none of a suspended tenant, and none whose objects move. The glue.

The place refuses the clients, because an administrator inside can bind itself once more, keep tokens of
ServiceAccounts, or refuse the operator's writes by a policy. The binding inside is the second line.

What programs wrote while objects move out would be lost: no mirror follows it, and the control plane is deleted
afterwards. While objects move in, no client has a kubeconfig, because what its owners wrote inside would be in the way.
"""

from __future__ import annotations

import logging

from tenantry.api import reasons
from tenantry.api.errors import TenantryError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json, Resource
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.virtualcontrolplane import apiservice, decisive, kubeconfigplace
from tenantry.controllers.virtualcontrolplane.sleeper import is_entering, is_handed_over
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Blocked
from tenantry.hosting.placement import Placement, ReachedPlane

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

    async def bring(self, cluster: Cluster, found: VirtualControlPlane, namespace: Observed) -> Blocked | None:
        """Open or close a control plane; return what to report if the place does not confirm it.

        Args:
            cluster: Has the owner, whose objects may move.
            found: The control plane.
            namespace: Its namespace, which has the suspension of the tenant.
        """
        uid, is_open = found.metadata.uid, decisive.is_open(namespace)
        why = "while its objects move to the host" if is_open else "while the tenant is suspended"
        is_open = is_open and not is_handed_over(cluster, found)
        if self._confirmed.get(uid) is is_open:
            return None
        self._confirmed.pop(uid, None)
        try:
            await self._placement.open(uid, is_open=is_open)
        except TenantryError as error:
            log.warning("a control plane is not closed or opened", extra={"uid": uid, "error": str(error)})
            wanted = "let in again" if is_open else f"shut out {why}"
            return Blocked(reason=reasons.NOT_PLACED, message=f"its clients cannot be {wanted}: {error}", passing=True)
        self._confirmed[uid] = is_open
        return None

    def is_mirrored(self, cluster: Cluster, found: VirtualControlPlane) -> bool:
        """Return whether mirrors follow it: until its objects move to the host and no client can write any more."""
        return not (is_handed_over(cluster, found) and self._confirmed.get(found.metadata.uid) is False)

    def is_withheld(self, cluster: Cluster, found: VirtualControlPlane) -> bool:
        """Return whether its kubeconfig is not written yet: until all objects of the host are inside."""
        return is_entering(cluster, found)

    def is_open(self, cluster: Cluster, found: VirtualControlPlane, namespace: Observed) -> bool:
        """Return whether its users have access: the tenant is not suspended, and its objects do not move out."""
        return decisive.is_open(namespace) and not is_handed_over(cluster, found)

    def reported(self, cluster: Cluster, found: VirtualControlPlane, *, is_connected: bool) -> VirtualControlPlane:
        """Return the control plane with the Secret of its kubeconfig in its status.

        Args:
            cluster: Has its namespace and its owner.
            found: The control plane.
            is_connected: Whether its process runs, so that its Secret is written.
        """
        if not is_connected or self.is_withheld(cluster, found):
            return found
        return kubeconfigplace.reported(found, cluster.lookup(Namespace.resource, found.metadata.namespace))

    def reached(
        self, cluster: Cluster, found: VirtualControlPlane, namespace: Observed, at: ReachedPlane
    ) -> tuple[tuple[Resource, Json], ...]:
        """Return the host objects of `apiservice.reached`, without the kubeconfig while it is withheld."""
        return apiservice.reached(found, namespace, at, is_withheld=self.is_withheld(cluster, found))

    def forget(self, uid: str) -> None:
        """Drop what is known of a control plane that is deleted."""
        self._confirmed.pop(uid, None)
