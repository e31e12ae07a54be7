"""`tenantry local`: builds the programs of local clusters, and manages their cache."""

from __future__ import annotations

import shutil
from pathlib import Path

import click
import msgspec

from tenantry.cli import output
from tenantry.local import build, controlplaneversions, hostedversions, paths
from tenantry.local.clusters import list_clusters
from tenantry.local.progress import StreamProgress
from tenantry.local.real import kubelets

_MIB = 2**20


class CachedBuild(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A folder of binaries: whether this version of Tenantry uses it, and the clusters that were started from it."""

    folder: str
    mebibytes: int
    current: bool
    clusters: tuple[str, ...]


@click.group()
def local() -> None:
    """Build the binaries of local clusters, list and clean their caches."""


@local.command("build")
@click.option("--again", is_flag=True, help="Build even if the cache has the programs.")
@click.option("--with-dns", is_flag=True, help="Build CoreDNS, too, which hides the names of other tenants.")
@click.option(
    "--with-nodes", is_flag=True, help="Build the programs of real nodes, too: containerd, runc, gVisor, kubelet."
)
@click.option("--with-hosted", is_flag=True, help="Build the program of VirtualControlPlanes, too.")
@click.option(
    "--hosted-version",
    "hosted_versions",
    multiple=True,
    metavar="VERSION",
    help="Build the program of VirtualControlPlanes of another version of Kubernetes, as in 1.35, too; with"
    " --with-nodes, also the kubelet of that version. Repeatable.",
)
@click.option(
    "--kubernetes-version",
    "kubernetes_versions",
    multiple=True,
    metavar="VERSION",
    help="Build the control plane of another version of Kubernetes, as in 1.34, too. Repeatable.",
)
@click.option(
    "--with-conformance", is_flag=True, help="Build Kubernetes' end-to-end tests, too, for `make test-release`."
)
def build_(
    *,
    again: bool,
    with_dns: bool,
    with_nodes: bool,
    with_hosted: bool,
    hosted_versions: tuple[str, ...],
    kubernetes_versions: tuple[str, ...],
    with_conformance: bool,
) -> None:
    """Build the control plane and kwok, unless the cache has them. Prints the folders."""
    others = [controlplaneversions.VERSIONS.product(each) for each in kubernetes_versions]
    others += [hostedversions.product(each) for each in hosted_versions]
    if with_nodes:
        # Real nodes that serve a control plane of the version have its kubelets.
        others += [found for each in hosted_versions if (found := kubelets.product(each)) is not None]
    chosen = {build.DNS: with_dns, build.NODES: with_nodes, build.HOSTED: with_hosted}
    chosen |= {build.CONFORMANCE: with_conformance}
    several = (build.CONTROL_PLANE, *(product for product, is_chosen in chosen.items() if is_chosen), *others)
    products = [each for product in several for each in (product, *product.beside)]
    with StreamProgress() as progress:
        folders = [build.ensure(progress, product, again=again).folder for product in products]
    output.write_lines(str(folder) for folder in folders)


@local.command("list")
@output.output_option("table", "json", default="table")
def list_(*, form: str) -> None:
    """List the builds in the cache."""
    found = _cached()
    if form == "json":
        output.write(output.to_json(found))
        return
    for each in found:
        used = f"used by {', '.join(each.clusters)}" if each.clusters else "unused"
        output.write(f"{each.folder}  {each.mebibytes} MiB  {'current' if each.current else 'old'}, {used}")


@local.command()
@click.option(
    "--all", "everything", is_flag=True, help="Remove the current build and the downloaded Go toolchain, too."
)
def clean(*, everything: bool) -> None:
    """Remove builds that are not current and that no running cluster uses."""
    running = {used for cluster in list_clusters() if cluster.is_running() for used in cluster.spec().programs}
    freed = 0
    for each in _cached():
        if each.folder not in running and (everything or not each.current):
            freed += build.remove(Path(each.folder))
    if everything:
        shutil.rmtree(paths.cache() / "go", ignore_errors=True)
    output.talk(f"{freed // _MIB} MiB freed")


def _cached() -> list[CachedBuild]:
    current = {
        found.folder
        for product in (
            *build.PRODUCTS,
            *controlplaneversions.VERSIONS.products(),
            *hostedversions.products(),
            *kubelets.products(),
        )
        if (found := build.built(product))
    }
    clusters = [(cluster.name, used) for cluster in list_clusters() for used in cluster.spec().programs]
    return [
        CachedBuild(
            folder=str(folder),
            mebibytes=sum(file.lstat().st_size for file in folder.iterdir()) // _MIB,
            current=folder in current,
            clusters=tuple(name for name, binaries in clusters if binaries == str(folder)),
        )
        for folder in build.cached()
    ]
