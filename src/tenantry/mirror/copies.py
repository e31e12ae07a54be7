"""Copies ConfigMaps and Secrets to the lower side while a mirrored pod names them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import msgspec

from tenantry.api.errors import AlreadyExists, Conflict, NotFound
from tenantry.api.model import Json, object_key
from tenantry.engine import request
from tenantry.engine.cluster import Cluster
from tenantry.engine.request import ApiRequest, Verb
from tenantry.mirror import references, things
from tenantry.mirror.profile import Profile
from tenantry.mirror.references import PodReference
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import COPIED, Copy

VERSION = "version"
"""The mark of a copy: the resourceVersion of its source."""

_CONTENT = ("data", "binaryData", "immutable")
_KEPT_TYPES = ("kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson", "kubernetes.io/tls")
"""Types whose content the lower API server checks; others become Opaque, token Secrets above all."""


class Copies:
    """The copies of one mirror.

    Args:
        profile: The configuration.
        upper: The cluster of the sources.
        lower: The side of the copies.
    """

    def __init__(self, profile: Profile, upper: Cluster, lower: LowerSide) -> None:
        self._profile = profile
        self._upper = upper
        self._lower = lower

    async def bring(self, needed: Iterable[PodReference]) -> None:
        """Create or update the copies that a pod needs; a source that does not exist is no error, as on any node.

        Raises:
            ApiError: One side refuses.
        """
        for each in sorted(needed, key=str):
            await self._bring(each)

    async def drop(self, loose: Iterable[str], by_reference: str) -> None:
        """Delete the copies of sources that no pod names any more.

        Args:
            loose: `KIND/NAMESPACE/NAME` of sources that a pod named until now.
            by_reference: The index of upper pods by what they name.

        Raises:
            ApiError: The lower side refuses.
        """
        pods = self._upper.cache(things.PODS)
        for each in loose:
            kind, _, key = each.partition("/")
            if not pods.count(by_reference, each):
                await self._delete(kind, self._copy(kind, key))

    def all(self) -> Iterator[str]:
        """Yield `KIND/NAMESPACE/NAME` of the sources of all copies."""
        for kind, resource in COPIED.items():
            for copy in self._lower.cluster.cache(resource):
                is_own = things.is_of(self._profile, copy.key, copy.labels)
                if is_own and self._profile.mark(VERSION) in copy.annotations:
                    yield f"{kind}/{things.upper_key(self._profile, copy.annotations)}"

    def _copy(self, kind: str, key: str) -> Copy | None:
        namespace, _, name = key.partition("/")
        lower = self._profile.lower_name(kind, namespace, name)
        return self._lower.cluster.cache(COPIED[kind]).get(object_key(self._profile.namespace, lower))

    async def _bring(self, named: PodReference) -> None:
        resource, key = COPIED[named.kind], object_key(named.namespace, named.name)
        source, copy = self._upper.cache(resource).get(key), self._copy(named.kind, key)
        if source is None:
            await self._delete(named.kind, copy)
            return
        if copy is not None and copy.annotations.get(self._profile.mark(VERSION)) == str(source.version):
            return
        try:
            data = await self._upper.writer.send(request.get(resource, named.namespace, named.name))
        except NotFound:
            return  # the watch is about to report it
        live = msgspec.json.decode(data)
        wanted = self._wanted(named, live)
        meta = wanted["metadata"]
        if copy is not None and copy.annotations.get(self._profile.mark("uid")) != live["metadata"]["uid"]:
            # Of an earlier source of this name: `immutable` and the type of its copy can never change.
            await self._delete(named.kind, copy)
            copy = None
        if copy is None:
            asked = ApiRequest(
                verb=Verb.CREATE, resource=resource, namespace=meta["namespace"], name=meta["name"], body=wanted
            )
            # AlreadyExists: of another pod's reconcile, or a foreign object, which the lower pod then reads.
            with suppress(AlreadyExists):
                await self._lower.writer.own(asked, quiet=True)
            return
        asked = ApiRequest(
            verb=Verb.REPLACE, resource=resource, namespace=meta["namespace"], name=meta["name"], body=wanted
        )
        await self._lower.writer.own(asked, quiet=True)

    def _wanted(self, named: PodReference, live: Json) -> Json:
        profile = self._profile
        content: Json = {field: live[field] for field in _CONTENT if field in live}
        if named.kind == references.SECRET:
            given = live.get("type", "")
            content["type"] = given if given in _KEPT_TYPES else "Opaque"
        marks = {"namespace": named.namespace, "name": named.name, "uid": live["metadata"]["uid"]}
        marks[VERSION] = live["metadata"]["resourceVersion"]
        return {
            "apiVersion": "v1",
            "kind": named.kind,
            "metadata": {
                "name": profile.lower_name(named.kind, named.namespace, named.name),
                "namespace": profile.namespace,
                "labels": profile.labels(named.namespace),
                "annotations": {profile.mark(key): value for key, value in marks.items()},
                "ownerReferences": [profile.owner] if profile.owner else [],
            },
            **content,
        }

    async def _delete(self, kind: str, copy: Copy | None) -> None:
        if copy is None:
            return
        namespace, _, name = copy.key.partition("/")
        with suppress(NotFound, Conflict):
            await self._lower.writer.send(request.delete(COPIED[kind], namespace, name, uid=copy.uid))
