"""What the children of tenants in files are made of, without a cluster; see `tenantry.cli.render`."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence

import msgspec

from tenantry.api.errors import InputError
from tenantry.api.kubernetes import Namespace, ResourceQuota, ResourceQuotaSpec
from tenantry.api.model import KubernetesObject, Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.controllers import tenantnamespace, watched
from tenantry.controllers.subnamespace import checks, desired
from tenantry.controllers.subnamespace.gather import CHILD_KINDS, SubnamespaceCaches, SubnamespaceInputs, gather
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.controllers.tenantnamespace import TenantNamespace
from tenantry.engine.cache import Cache
from tenantry.engine.observed import Observed, observe
from tenantry.world import quota
from tenantry.world.naming import DIGITS

UNKNOWN = "x" * DIGITS
"""What stands for the digits of a child's name, which are made of the tenant's uid."""


class Forest:
    """The trees of files.

    Args:
        tenants: Of the files.
        subnamespaces: Of the files.
    """

    def __init__(self, tenants: Sequence[Tenant], subnamespaces: Sequence[Subnamespace]) -> None:
        observed: dict[Resource, Cache[Observed]] = {
            kind.resource: Cache(watched.watch(kind.resource, lambda _: ()).indexes) for kind in CHILD_KINDS
        }
        self._caches = SubnamespaceCaches(Cache(), Cache(watched.subnamespaces(lambda _: ()).indexes), observed, {})
        # Listed: what is in no cluster has no version.
        for tenant in tenants:
            self._caches.tenants.put(tenant, listed=0)
        for subnamespace in subnamespaces:
            self._caches.subnamespaces.put(subnamespace, listed=0)
        self._names = _names(subnamespaces)

    def know(self, made: Sequence[KubernetesObject]) -> None:
        """Take in the namespace among what was made, so that there can be children in it."""
        for value in made:
            if isinstance(value, Namespace):
                seen = observe(Namespace.resource, msgspec.json.encode(value))
                self._caches.namespaces.put(seen, listed=0)

    def below(self, namespace: str) -> list[KubernetesObject]:
        """Return everything of the children of a namespace, and of theirs.

        Raises:
            InputError: One of them cannot be made.
        """
        found: list[KubernetesObject] = []
        for subnamespace in self._caches.subnamespaces.by_index(watched.BY_NAMESPACE, namespace):
            inputs = self._inputs(subnamespace)
            found += self._made(inputs)
            found += self.below(inputs.namespace)
        return found

    def lost(self) -> Subnamespace | None:
        """Return a Subnamespace whose parent none of the files makes, once all are made."""
        known = self._caches.namespaces
        return next((each for each in self._caches.subnamespaces if known.get(each.metadata.namespace) is None), None)

    def _inputs(self, subnamespace: Subnamespace) -> SubnamespaceInputs:
        inputs = gather(subnamespace, self._caches, None, cluster_uid="", now=dt.datetime.now(dt.UTC))
        return msgspec.structs.replace(inputs, namespace=self._names[subnamespace.key])

    def _made(self, inputs: SubnamespaceInputs) -> list[KubernetesObject]:
        tenant, key = inputs.tenant, inputs.subnamespace.key
        # A namespace that is taken over is in a cluster only.
        alone = msgspec.structs.replace(inputs.subnamespace.spec, adopt=type(inputs.subnamespace.spec.adopt)())
        asked = msgspec.structs.replace(inputs.subnamespace, spec=alone)
        blocked = checks.blocked(msgspec.structs.replace(inputs, subnamespace=asked))
        if blocked is not None or tenant is None:
            raise InputError(f"Subnamespace {key!r}: {blocked.message if blocked is not None else 'has no tenant'}")
        try:
            children = sorted(desired.children(inputs, tenant), key=lambda child: child.wave)
            made = [child.object for child in children]
            share = _share(inputs, tenant)
        except InputError as error:
            raise InputError(f"Subnamespace {key!r}: {error}") from error
        made[1:1] = [share] if share is not None else []
        self.know(made)
        return made


def _names(subnamespaces: Sequence[Subnamespace]) -> dict[str, str]:
    """Return the names of the children's namespaces by key: as parents in the files have them, where they do."""
    parents = {each.metadata.namespace for each in subnamespaces}
    names = [each.metadata.name for each in subnamespaces]
    found: dict[str, str] = {}
    for each in subnamespaces:
        name = each.metadata.name
        pattern = re.compile(f"{re.escape(name)}-[0-9a-f]{{{DIGITS}}}")
        said = [parent for parent in parents if pattern.fullmatch(parent)]
        told = said[0] if len(said) == 1 and names.count(name) == 1 else ""
        found[each.key] = each.spec.adopt.namespace or told or f"{name}-{UNKNOWN}"
    return found


def _share(inputs: SubnamespaceInputs, tenant: Tenant) -> ResourceQuota | None:
    whole = quota.normal(tenant.spec.quota.hard)
    if not whole:
        return None
    asked = quota.normal(inputs.subnamespace.spec.quota.hard)
    namespace = TenantNamespace(tenant=tenant, name=inputs.namespace, owners=(), hard=whole, suspended=False)
    hard = {key: asked.get(key, "0") for key in whole}
    return ResourceQuota(metadata=tenantnamespace.meta(namespace, QUOTA), spec=ResourceQuotaSpec(hard=hard))
