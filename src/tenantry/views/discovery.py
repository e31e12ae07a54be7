"""The kinds that an API server serves, found by apiVersion and kind or by a word of the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tenantry.api.errors import InputError, NotFound
from tenantry.api.model import Resource
from tenantry.engine.tasks import all_of

if TYPE_CHECKING:
    from tenantry.kube.client import Client

EVERYTHING = "*"


class _ApiResource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    kind: str
    namespaced: bool
    singular_name: str = ""
    short_names: tuple[str, ...] = ()

    def is_called(self, word: str) -> bool:
        return word in {self.name, self.singular_name, self.kind.lower(), *self.short_names}


class _ApiResourceList(msgspec.Struct, frozen=True):
    resources: tuple[_ApiResource, ...] = ()


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    group_version: str


class _Group(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    preferred_version: _Version


class _GroupList(msgspec.Struct, frozen=True):
    groups: tuple[_Group, ...]


class Discovery:
    """Reads the lists of kinds, each at most once.

    Source: Kubernetes, "The Kubernetes API" (discovery API).
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lists: dict[str, tuple[_ApiResource, ...]] = {}

    async def by_kind(self, api_version: str, kind: str) -> Resource:
        """Return the resource of a kind.

        Raises:
            InputError: The cluster has no such kind.
        """
        for each in await self._list(api_version):
            if each.kind == kind:
                return _resource(api_version, each)
        raise InputError(f"this cluster has no kind {kind!r} in {api_version!r}")

    async def by_word(self, text: str) -> tuple[Resource, str]:
        """Return the resource and the subresource that a word means.

        Args:
            text: As in pods, po, Pod, deployments.apps, pods/log; "*" for every resource.

        Raises:
            InputError: The cluster has no such resource.
        """
        word, _, subresource = text.partition("/")
        if word == EVERYTHING:
            return Resource(EVERYTHING, "v1", EVERYTHING, EVERYTHING), subresource
        plural, _, group = word.lower().partition(".")
        # The core group first, as kubectl does: `pods` never means pods.metrics.k8s.io.
        versions = [] if group else ["v1"]
        if group or not any(each.is_called(plural) for each in await self._list("v1")):
            answer = await self._client.request("GET", "/apis")
            groups = self._client.decode(_GroupList, answer).groups
            versions = [each.preferred_version.group_version for each in groups if group in {"", each.name}]
        for version, resources in zip(versions, await all_of(self._list(each) for each in versions), strict=True):
            for each in resources:
                if each.is_called(plural):
                    return _resource(version, each), subresource
        raise InputError(f"this cluster has no resource {text!r}; `kubectl api-resources` lists the ones that it has")

    async def _list(self, api_version: str) -> tuple[_ApiResource, ...]:
        if api_version not in self._lists:
            root = "/apis" if "/" in api_version else "/api"
            try:
                answer = await self._client.request("GET", f"{root}/{api_version}")
            except NotFound:
                # The server of an aggregated API may be down while its group is still listed.
                self._lists[api_version] = ()
            else:
                found = self._client.decode(_ApiResourceList, answer).resources
                # A name with a slash is a subresource.
                self._lists[api_version] = tuple(each for each in found if "/" not in each.name)
        return self._lists[api_version]


def _resource(api_version: str, found: _ApiResource) -> Resource:
    group, _, version = api_version.rpartition("/")
    return Resource(group, version, found.name, found.kind, namespaced=found.namespaced)
