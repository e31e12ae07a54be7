"""`tenantry render`: the objects that the operator would create for tenants in files; no cluster is needed."""

from __future__ import annotations

import click

from tenantry.cli import output


@click.command()
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE|FOLDER|-",
    help="File with Tenants, Subnamespaces, DedicatedClusters and ClusterTemplates, or folder of such files; - is"
    " stdin. May be repeated.",
)
@output.output_option("yaml", "json", default="yaml", text="YAML documents, or one JSON List.")
def render(*, files: tuple[str, ...], form: str) -> None:
    r"""Print the objects that the operator would create for tenants, their subnamespaces and their clusters.

    Only a cluster knows the uids of tenants: labels and selectors with a uid are empty, and the digits in the name of a
    child's namespace are x, unless a Subnamespace in the files is in it. Quotas are divided over the tree. Inherited
    objects, and the nodes of clusters, are not shown. A DedicatedCluster whose template names a ClusterClass becomes a
    Cluster of Cluster API, as if that were installed. The output is for review; apply the Tenant instead.

    \b
      tenantry render -f tenants.yaml
    """
    from tenantry.cli.documents import read_manifests
    from tenantry.views.drift import rendering

    # All objects are rendered before the first is printed: half an answer would look complete.
    manifests = read_manifests(files)
    found = [output.whole(value) for value in rendering.render(manifests)]
    output.print_documents([*found, *rendering.render_clusters(manifests)], form)
