"""Keeps the owners' right to read the kubeconfig of their control plane, and deletes former Secrets. The glue.

binding of the owners in their namespace ─► its subjects ─► Role and RoleBinding in `tenantry-kubeconfigs`
suspended, or objects move out ─► no subjects
VirtualControlPlane deleted ─► Secret, RoleBinding and Role deleted

`rotations` replaces the credentials of a removed owner when this RoleBinding no longer has the owner.
"""

from __future__ import annotations

from tenantry.api.model import Json, Resource, object_key
from tenantry.api.planecredentials import KUBECONFIGS_NAMESPACE
from tenantry.api.virtualcontrolplane import PLANE, VirtualControlPlane, kubeconfig_secret_name
from tenantry.controllers.tenantnamespace import OWNER_BINDING
from tenantry.controllers.virtualcontrolplane import desired, kubeconfigobjects, kubeconfigplace
from tenantry.controllers.virtualcontrolplane.hostobjects import HostObjects
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed
from tenantry.mirror.shapes import part
from tenantry.mirror.things import Copy


class Kubeconfigs:
    """Keeps the rights of owners to read the kubeconfigs in `tenantry-kubeconfigs`.

    Args:
        cluster: Its caches have these objects.
        objects: Brings them to what they should be.
    """

    def __init__(self, cluster: Cluster, objects: HostObjects) -> None:
        self._cluster = cluster
        self._objects = objects
        # By namespace: the resourceVersion of the binding of its owners, and its subjects then.
        self._owners: dict[str, tuple[int, list[Json]]] = {}
        # The uids of control planes whose Secret is not one of a former control plane.
        self._cleared: set[str] = set()

    async def bring(self, found: VirtualControlPlane, namespace: Observed, *, is_open: bool) -> None:
        """Bring the rights of the owners to what they should be; nothing of a control plane of other users.

        Args:
            found: The VirtualControlPlane.
            namespace: Its namespace.
            is_open: Whether its users have access.

        Raises:
            ApiError: The API server refuses, or does not answer.
        """
        if not kubeconfigplace.is_outside(found, namespace):
            return
        uid = found.metadata.uid
        if uid not in self._cleared:
            # Before the owners have a right to a Secret of this name.
            await self._clear(found)
            self._cleared.add(uid)
        await self._retire(found)
        subjects = await self._subjects(namespace.name, found.metadata.name) if is_open else []
        await self._objects.bring(kubeconfigobjects.rights(found, namespace, subjects), uid)

    async def remove(self, key: str, uid: str) -> None:
        """Delete the kubeconfig of a control plane that is deleted, and the rights to read it.

        Args:
            key: Its namespace, a slash and its name.
            uid: Its uid.

        Raises:
            ApiError: The API server refuses, or does not answer.
        """
        namespace = key.partition("/")[0]
        self._owners.pop(namespace, None)
        self._cleared.discard(uid)
        for resource in (desired.ROLE_BINDINGS, kubeconfigobjects.ROLES, desired.SECRETS):
            live = await self._objects.find(resource, KUBECONFIGS_NAMESPACE, namespace)
            # A later control plane of the name may have them by now.
            if live is not None and kubeconfigobjects.is_of(live, uid):
                await self._remove(resource, live)

    async def _clear(self, found: VirtualControlPlane) -> None:
        """Delete the Secret of a control plane before this one, which a namespace of the same name may have had."""
        live = await self._objects.find(desired.SECRETS, KUBECONFIGS_NAMESPACE, found.metadata.namespace)
        if live is not None and not kubeconfigobjects.is_of(live, found.metadata.uid):
            await self._remove(desired.SECRETS, live)

    async def _retire(self, found: VirtualControlPlane) -> None:
        """Delete the Secret that an earlier version has written in the namespace of the tenant."""
        namespace, name = found.metadata.namespace, kubeconfig_secret_name(found.metadata.name)
        if self._cluster.cache(desired.SECRETS).get(object_key(namespace, name)) is None:
            return
        live = await self._objects.find(desired.SECRETS, namespace, name)
        # An adopted Secret of users may have this name, and the VirtualControlPlane as its owner.
        if live is not None and part(live["metadata"], "labels").get(PLANE) == found.metadata.name:
            await self._remove(desired.SECRETS, live)

    async def _subjects(self, namespace: str, name: str) -> list[Json]:
        """Return the owners of a namespace, as their binding of a control plane has them; [] while there is none."""
        key = object_key(namespace, OWNER_BINDING)
        cached: Copy | None = self._cluster.cache(desired.ROLE_BINDINGS).get(key)
        version, known = self._owners.get(namespace, (0, []))
        if cached is not None and cached.version == version:
            return known
        live = await self._objects.find(desired.ROLE_BINDINGS, namespace, OWNER_BINDING)
        # No user may set the label, also while the operator replaces the binding of a Shared namespace.
        if live is None or part(live["metadata"], "labels").get(PLANE) != name:
            return []
        subjects: list[Json] = live.get("subjects") or []
        self._owners[namespace] = int(live["metadata"]["resourceVersion"]), subjects
        return subjects

    async def _remove(self, resource: Resource, live: Json) -> None:
        meta: Json = live["metadata"]
        await self._cluster.writer.remove(resource, meta["namespace"], meta["name"], uid=meta["uid"])
