"""Refuses to write what Git decides: prints the patch for Git instead. Also what the template of a cluster refuses.

object with marks of Argo CD or Flux ─► patch on stdout, exit code 1
the same with --force                ─► written; the tool takes it back when it compares the object with Git
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import TenantryError
from tenantry.api.model import Json, KubernetesObject
from tenantry.cli import kinds, output

if TYPE_CHECKING:
    from tenantry.kube.client import Client

force_option = click.option(
    "--force",
    "forced",
    is_flag=True,
    help="Write into the cluster even if Argo CD, Flux or Helm manages the object, and may undo it (default: print the"
    " patch for Git, and end with 1).",
)


async def check(
    client: Client, kind: type[KubernetesObject], name: str, namespace: str, patch: Json, *, forced: bool
) -> None:
    """Refuse a write into an object that a GitOps tool manages, and print the patch for Git on stdout.

    The patch is a YAML document that `kustomize` takes as a patch. Lists in it are whole, because a custom kind has no
    other merge.

    Args:
        client: The client of the cluster.
        kind: The kind of the object.
        name: Its name.
        namespace: Its namespace.
        patch: The merge patch; of its metadata, only the labels and the annotations are printed.
        forced: Write it all the same.

    Raises:
        InputError: The template of the cluster does not offer the version in the patch.
        TenantryError: A tool manages the object.
    """
    from tenantry.cli.cluster import offered
    from tenantry.kube import wire
    from tenantry.views.gitmanagers import manager_of

    version = patch.get("spec", {}).get("version", "")
    if kind is DedicatedCluster and version:
        # Before Git has a version that the operator would not carry out.
        await offered.check(client, name, namespace, version)
    data = await client.request("GET", wire.path(kind.resource, namespace, name))
    manager = manager_of(msgspec.json.decode(data, type=Json))
    if manager is None:
        return
    told = kinds.told(kind, name, namespace)
    if forced:
        output.talk(f"warning: {told} is managed by {manager}, which may undo this: change it in Git, too")
        return
    output.write(output.to_yaml([document(kind, name, namespace, patch)]).rstrip("\n"))
    raise TenantryError(
        f"{told} is managed by {manager}, and nothing was changed: apply the patch on stdout in Git, or repeat the"
        " command with --force, which the tool may undo"
    )


def document(kind: type[KubernetesObject], name: str, namespace: str, patch: Json) -> Json:
    """Return the patch for Git: the merge patch with what identifies the object."""
    kept = {key: value for key, value in patch.get("metadata", {}).items() if key in ("labels", "annotations")}
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.resource.kind,
        "metadata": {"name": name, "namespace": namespace, **kept},
        **{key: value for key, value in patch.items() if key != "metadata"},
    }
