"""`tenantry render`: what the operator would make of tenants in a file; no cluster is needed or asked."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from tenantry.api.errors import InputError
from tenantry.api.model import KubernetesObject
from tenantry.api.tenant import Tenant
from tenantry.cli import output

Json = dict[str, Any]


@click.command()
@click.option(
    "-f", "--filename", "files", multiple=True, required=True, metavar="FILE|-", help="Tenants; - is stdin. Repeatable."
)
@output.output_option("yaml", "json", default="yaml", text="YAML documents, or one JSON List.")
def render(*, files: tuple[str, ...], form: str) -> None:
    r"""Print the objects that tenants are made of, in the order in which the operator makes them.

    The uids of tenants and cluster are known to a cluster only: labels and selectors that hold them are empty. This is
    to be read and reviewed, not to be applied; apply the Tenant.

    \b
      tenantry render -f tenants.yaml
    """
    from tenantry.cli.documents import tenants

    # Everything is made before anything is printed: half an answer would look like a whole one.
    objects = [value for tenant in tenants(files) for value in children(tenant)]
    if form == "json":
        output.print_objects(objects, "json", single=False)
    else:
        output.write(output.to_yaml(objects))


def children(tenant: Tenant) -> list[Json]:
    """Return everything that a tenant is made of.

    Raises:
        InputError: It cannot be made.
    """
    from tenantry.controllers.tenant import desired

    try:
        # Whether a cluster has ClusterNetworkPolicy is not known here: a tenant that asks for one is shown with it.
        made = desired.children(tenant, "", has_cluster_policies=True)
    except InputError as error:
        raise InputError(f"Tenant {tenant.metadata.name!r}: {error}") from error
    return [whole(child.object) for child in made]


def whole(value: KubernetesObject) -> Json:
    """Return an object with its apiVersion and kind, as JSON values."""
    resource = value.resource
    return {"apiVersion": resource.api_version, "kind": resource.kind, **msgspec.to_builtins(value)}
