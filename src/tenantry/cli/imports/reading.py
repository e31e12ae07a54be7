"""Reads the objects of the other tool from files or from an API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from tenantry.api.errors import ConfigError, InputError, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Resource
from tenantry.cli.documents import Document, documents_in, expanded
from tenantry.kube.client import Client
from tenantry.world.imports.objects import ImportSource, SourceObjects, UsedQuota, read


def documents(files: Sequence[str], title: str) -> list[Document]:
    """Return the documents of files, and of the files in folders; "-" is stdin.

    Raises:
        InputError: A file cannot be read, or has no documents.
    """
    return [each for file in files for inner in expanded(file) for each in documents_in(inner, f"{title}'s objects")]


def from_files(source: ImportSource, files: Sequence[str]) -> SourceObjects:
    """Return the objects in files.

    Raises:
        InputError: The files are not what the import needs.
    """
    world = read(source, [(each.where, each.value) for each in documents(files, source.title)])
    if not world.namespaces:
        raise InputError(f"the files have no Namespaces: write all that the import reads with `{source.listing}`")
    return world


async def from_cluster(client: Client, source: ImportSource) -> SourceObjects:
    """Return the objects in a cluster.

    Raises:
        ConfigError: The cluster does not have the first of the source's kinds.
    """
    found: list[tuple[str, object]] = []
    for index, kind in enumerate((*source.kinds, Namespace.resource, UsedQuota.resource)):
        try:
            found += [each async for each in _listed(client, kind)]
        except NotFound as error:
            if index:
                continue  # a kind of another release of the tool
            raise ConfigError(
                f"this cluster does not have {source.title}'s kinds ({kind.full_name}, {kind.version}); choose another"
                " one with --cluster, --kubeconfig or --context, or read files with -f"
            ) from error
    return read(source, found)


async def _listed(client: Client, kind: Resource) -> AsyncIterator[tuple[str, object]]:
    async for raw in client.items(kind, msgspec.Raw):
        value = msgspec.json.decode(raw, type=dict[str, object])
        # The items of a list have neither, as the API server writes it.
        yield kind.full_name, {**value, "apiVersion": kind.api_version, "kind": kind.kind}
