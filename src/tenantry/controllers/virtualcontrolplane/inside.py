"""Keeps what a control plane needs inside before users come: their binding, and one node. The glue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from tenantry.api.errors import ApiError, Conflict, Invalid
from tenantry.controllers.virtualcontrolplane import desired
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.hosting.plane import HostedPlane
from tenantry.mirror import things
from tenantry.mirror.things import Copy

KEY = "inside"
"""The one key of the controller."""


_AWAY = frozenset({0, 429, 503})
"""The statuses that are no refusals: no answer, too many requests, unavailable."""

NODE_SECONDS = 30.0
"""When to look again for a node that the pods of this control plane can use."""


class InsideController:
    """Reconciles one control plane from inside; there is one key.

    Args:
        plane: The control plane.
        is_open: Returns whether users have access now: not while their tenant is suspended.
        first_node: Makes sure that there is a node, and returns whether there is: programs and Kubernetes' own tests
            expect one.
        arrived: Called once users can work: their binding and the first ServiceAccount are there.
        refused: Called with why the API server refuses to write their binding, and with "" once it does not.
    """

    name = "inside"
    kind = Copy

    def __init__(
        self,
        plane: HostedPlane,
        is_open: Callable[[], bool],
        first_node: Callable[[], Awaitable[bool]],
        arrived: Callable[[], None],
        refused: Callable[[str], None],
    ) -> None:
        self._plane = plane
        self._is_open = is_open
        self._first_node = first_node
        self._arrived = arrived
        self._refused = refused
        self._has_arrived = False
        self._has_node = False

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        accounts = {"fieldSelector": "metadata.namespace=default,metadata.name=default"}
        bindings = {"fieldSelector": f"metadata.name={desired.OWNERS}"}
        return [
            Watch(resource=desired.SERVICE_ACCOUNTS, decode=things.headed, keys=_key, selectors=accounts),
            Watch(resource=desired.CLUSTER_ROLE_BINDINGS, decode=things.headed, keys=_key, selectors=bindings),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - one key
        """Bring back what is missing.

        Raises:
            ApiError: The API server refuses, or does not answer.
        """
        try:
            await self._bind_users(cluster)
        except Conflict:
            raise  # the next try succeeds
        except ApiError as error:
            # Administrators inside can refuse it by policies and webhooks; a server that is away reports none of them.
            if error.status not in _AWAY:
                self._refused(str(error))
            raise
        self._refused("")
        # The ServiceAccount's creation is the first event in any case: it wakes this key.
        if not self._has_arrived and not len(cluster.cache(desired.SERVICE_ACCOUNTS)):
            return None
        self._has_node = self._has_node or await self._first_node()
        if not self._has_arrived:
            self._has_arrived = True
            self._arrived()
        # The host may get a node, or give one back to this namespace.
        return None if self._has_node else NODE_SECONDS

    async def _bind_users(self, cluster: Cluster) -> None:
        """Bring the binding of the users to what it should be; applying what is there already causes no event."""
        wanted = desired.owners_binding(self._plane, is_open=self._is_open())
        try:
            await cluster.writer.send(request.apply(desired.CLUSTER_ROLE_BINDINGS, wanted))
        except Invalid:
            # Users have created it again with another role, which the API server never changes.
            found = cluster.cache(desired.CLUSTER_ROLE_BINDINGS).get(desired.OWNERS)
            if found is not None:
                await cluster.writer.remove(desired.CLUSTER_ROLE_BINDINGS, "", desired.OWNERS, uid=found.uid)
            await cluster.writer.send(request.apply(desired.CLUSTER_ROLE_BINDINGS, wanted))


def _key(change: Change[Copy]) -> Iterable[str]:  # noqa: ARG001 - there is one key
    return [KEY]
