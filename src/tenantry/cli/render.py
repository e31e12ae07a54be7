"""`tenantry render`: what the operator would make of tenants in a file; no cluster is needed or asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tenantry.api.errors import InputError
from tenantry.api.model import KubernetesObject
from tenantry.api.tenant import Tenant
from tenantry.cli import output

if TYPE_CHECKING:
    from tenantry.cli.documents import Wanted

Json = dict[str, Any]


@click.command()
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE|-",
    help="Tenants and Subnamespaces; - is stdin. Repeatable.",
)
@output.output_option("yaml", "json", default="yaml", text="YAML documents, or one JSON List.")
def render(*, files: tuple[str, ...], form: str) -> None:
    r"""Print the objects that tenants and their subnamespaces are made of, as the operator makes them.

    The uids of tenants and cluster are known to a cluster only: labels and selectors that hold them are empty, and
    the digits in the name of a child's namespace are x, unless a Subnamespace of the files is in it. A quota is what is
    asked for: what its children get is still to be taken off. What children inherit is not shown. This is to be read
    and reviewed, not to be applied; apply the Tenant.

    \b
      tenantry render -f tenants.yaml
    """
    from tenantry.cli.documents import wanted

    # Everything is made before anything is printed: half an answer would look like a whole one.
    objects = [whole(value) for value in made(wanted(files))]
    if form == "json":
        output.print_objects(objects, "json", single=False)
    else:
        output.write(output.to_yaml(objects))


def made(wanted: Wanted) -> list[KubernetesObject]:
    """Return everything that tenants and Subnamespaces are made of: each tenant's, then its children's.

    Raises:
        InputError: One of them cannot be made, or there is no parent for it in the files.
    """
    from tenantry.cli.rendertree import Forest

    forest = Forest(wanted.tenants, wanted.subnamespaces)
    found: list[KubernetesObject] = []
    for tenant in wanted.tenants:
        objects = children(tenant)
        forest.know(objects)
        found += [*objects, *forest.below(tenant.metadata.name)]
    lost = forest.lost()
    if lost is not None:
        raise InputError(
            f"Subnamespace {lost.key!r}: its parent {lost.metadata.namespace!r} is neither a Tenant nor the namespace"
            " of a Subnamespace in these files: add that, or ask the cluster with `tenantry diff -f`"
        )
    return found


def children(tenant: Tenant) -> Sequence[KubernetesObject]:
    """Return everything that a tenant is made of.

    Raises:
        InputError: It cannot be made.
    """
    from tenantry.controllers.tenant import desired

    try:
        # Whether a cluster has ClusterNetworkPolicy is not known here: a tenant that asks for one is shown with it.
        found = desired.children(tenant, "", has_cluster_policies=True)
    except InputError as error:
        raise InputError(f"Tenant {tenant.metadata.name!r}: {error}") from error
    return [child.object for child in found]


def whole(value: KubernetesObject) -> Json:
    """Return an object with its apiVersion and kind, as JSON values."""
    resource = value.resource
    return {"apiVersion": resource.api_version, "kind": resource.kind, **msgspec.to_builtins(value)}
