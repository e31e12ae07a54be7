"""`tenantry install`: prints or applies the manifests of Tenantry, and reports what changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click
from typing_extensions import override

from tenantry.api.errors import InputError, TenantryError
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.model import Json, object_key
from tenantry.api.wording import shortened
from tenantry.cli import output, session
from tenantry.cli.target import Target, read_environment, resolve, takes_target
from tenantry.controllers.installation.comparison import restricted
from tenantry.install import clusterapi, manifests
from tenantry.install.fallback import MutationForm
from tenantry.install.planepods import PodOptions

if TYPE_CHECKING:
    from tenantry.kube.client import Client
    from tenantry.views.installationchanges import InstallationChanges


class _Install(click.Command):
    """Needs no cluster for --dry-run: the manifests are those for Kubernetes 1.36 and newer."""

    @override
    def invoke(self, ctx: click.Context) -> object:
        image: str = ctx.params["image"]
        if not image or image != "".join(image.split()):
            raise InputError(f"--image {image!r} must be the name of an image, without spaces")
        form: str | None = ctx.params["form"]
        folder: Path | None = ctx.params["clusterctl_repository"]
        if folder is not None:
            if not ctx.params["cluster_api_provider"]:
                raise InputError("--clusterctl-repository needs --cluster-api-provider: add it, or leave both out")
            _write_repository(folder.resolve())
            return None
        if ctx.params["dry_run"] and ctx.params["check"]:
            raise InputError("--dry-run needs no cluster, and --check looks at one: leave one of them out")
        if ctx.params["dry_run"]:
            kubeconfig, context, name = (ctx.params[flag] for flag in ("kubeconfig", "context", "name"))
            if kubeconfig or context or name:
                # A cluster that the user names must exist; the dry run reads its credentials and sends no request.
                resolve(kubeconfig, context, name, read_environment()).connection()
            subject = manifests.SERVICE_ACCOUNT
            more = _for_cluster_api(ctx.params, subject)
            output.print_documents([*manifests.everything(image, _pods(ctx.params)), *more], form or "yaml")
            return None
        if form and not ctx.params["check"]:
            raise InputError("-o is about what --dry-run or --check prints; add one of them, or leave it out")
        if form == "yaml":
            raise InputError("--check prints a table, or JSON: leave -o out, or give -o json")
        return super().invoke(ctx)


@click.command(cls=_Install)
@takes_target
@click.option(
    "--image",
    default=manifests.DEFAULT_IMAGE,
    show_default=True,
    metavar="IMAGE",
    help="Image of the operator; see Containerfile.",
)
@click.option(
    "--virtual-control-planes", is_flag=True, help="Run VirtualControlPlanes in Pods of namespace tenantry-vcp."
)
@click.option(
    "--hosted-image",
    multiple=True,
    metavar="[VERSION=]IMAGE",
    help="Image of these Pods, from `tenantry image build --with-hosted`. Required with --virtual-control-planes."
    " Repeat it with VERSION= for other versions of Kubernetes.",
)
@click.option("--hosted-storage-class", default="", help="StorageClass of their volumes (default: the cluster's).")
@click.option(
    "--hosted-service",
    type=click.Choice(["ClusterIP", "LoadBalancer"]),
    default="ClusterIP",
    show_default=True,
    help="Type of the Services by which users reach their API servers.",
)
@click.option(
    "--hosted-shards",
    type=click.IntRange(1, 16),
    default=1,
    show_default=True,
    help="Number of replicas of the operator that serve them, each a part.",
)
@click.option(
    "--hosted-etcd",
    is_flag=True,
    help="Run an etcd that they can share: spec.datastore.kind SharedEtcd. Its volume has 28 GiB.",
)
@click.option(
    "--cluster-api-provider",
    is_flag=True,
    help="Install the kinds by which Cluster API builds clusters out of nodes of this cluster.",
)
@click.option(
    "--cluster-api-clusters",
    is_flag=True,
    help="Let the operator create Clusters of Cluster API, for DedicatedClusters with the provider ClusterApi.",
)
@click.option(
    "--clusterctl-repository",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="With --cluster-api-provider: write the kinds as a local repository of clusterctl, and end; no cluster is"
    " needed.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the manifests for Kubernetes 1.36 and newer without applying them; no cluster is needed.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Print what the cluster has of what Tenantry uses, what it lacks, and what an installation with these options"
    " would create, change and delete; change nothing.",
)
@output.output_option(
    "yaml", "json", text="With --dry-run: YAML documents (the default), or one JSON List. With --check: json."
)
def install(target: Target, *, image: str, dry_run: bool, check: bool, form: str | None, **options: object) -> None:
    r"""Install Tenantry in a cluster, or update it.

    The command applies kinds, rights, policies, and the operator with two replicas in the namespace tenantry-system. It
    needs an administrator's rights, and can be repeated.

    \b
      tenantry install --context prod --image registry.example/tenantry:1
      tenantry install --dry-run > tenantry.yaml
    """
    del dry_run  # handled by _Install.invoke
    local = target.local_name
    if local is not None:
        if options["virtual_control_planes"]:
            raise InputError("a local cluster runs control planes itself: leave --virtual-control-planes out")
        output.talk(f"local cluster {local!r}: its operator runs beside it, so none is deployed")
    pods = _pods(options)

    def objects(mutations: MutationForm) -> list[Json]:
        # The Deployment's ServiceAccount would take the rights away from the operator that runs beside the cluster.
        subject = manifests.SERVICE_ACCOUNT if local is None else manifests.LOCAL_USER
        own = (
            manifests.everything(image, pods, mutations)
            if local is None
            else manifests.foundation(manifests.LOCAL_USER, mutations)
        )
        return [*own, *_for_cluster_api(options, subject)]

    if check:
        session.run(target, lambda client: _check(client, objects, form, is_local=local is not None))
        return
    counts = session.run(target, lambda client: _install(client, objects, is_local=local is not None))
    output.talk(", ".join(f"{number} {word}" for word, number in counts.items()))
    if local is None:
        output.talk(f"the operator is starting: kubectl -n {SYSTEM_NAMESPACE} rollout status deployment")


async def _check(
    client: Client, objects: Callable[[MutationForm], list[Json]], form: str | None, *, is_local: bool
) -> None:
    """Print what the cluster has and what an installation changes; the former also if the latter cannot be known.

    Raises:
        TenantryError: An installation would fail with the same error before its first write.
    """
    from tenantry.install import installed
    from tenantry.views.installationchanges import changes
    from tenantry.views.prerequisites import prerequisites

    parts = await prerequisites(client)
    found, problem = None, None
    try:
        await installed.require_no_release(client)
        if not is_local:
            await installed.require_none_beside(client)
        found = await changes(client, objects(await installed.form(client)))
    except TenantryError as error:
        problem = error
    if form == "json":
        output.write(output.to_json({"parts": parts, "installation": found}))
    else:
        rows = [(each.name, "yes" if each.is_there else "no", each.detail) for each in parts]
        output.show(output.table(("PART", "THERE", "DETAIL"), rows))
    if problem is not None:
        raise problem
    if found is not None and form != "json":
        _print_changes(found)


def _print_changes(found: InstallationChanges) -> None:
    if found.is_upgrade and found.changes:
        lines = [(each.change, each.full_name, each.problem or shortened(each.fields)) for each in found.changes]
        output.show("", output.table(("CHANGE", "OBJECT", "FIELDS"), lines))
    older = "an older Tenantry" if found.is_upgrade else "no Tenantry yet"
    there = f"Tenantry {found.installed}" if found.installed else older
    output.show("", f"the cluster has {there}; an installation of {found.version}: {found.counts}")


async def _install(client: Client, objects: Callable[[MutationForm], list[Json]], *, is_local: bool) -> dict[str, int]:
    """Apply what this version of the API server needs, and return how many objects were created and changed."""
    from tenantry.install import installed

    if not is_local:
        await installed.require_none_beside(client)
    form = await installed.form(client)
    if form is MutationForm.WEBHOOK:
        output.talk("this API server has no MutatingAdmissionPolicy v1: the operator serves mutations as a webhook")
    return await _apply(client, objects(form))


def _write_repository(folder: Path) -> None:
    """Write the files of `clusterctl`, and print the flags by which it finds them.

    Raises:
        InputError: A file cannot be written.
    """
    from tenantry import __version__
    from tenantry.install import clusterctl

    for name, documents in clusterctl.repository(str(folder), __version__).items():
        file = folder / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(output.to_yaml(documents))
        except OSError as error:
            raise InputError(f"--clusterctl-repository: {file} cannot be written: {error.strerror}") from error
    config = folder / clusterctl.CONFIGURATION
    output.talk(
        f"clusterctl finds the provider with --config {config}: --infrastructure tenantry --control-plane tenantry"
    )


def _for_cluster_api(given: Mapping[str, object], subject: Json) -> list[Json]:
    """Return what the options about Cluster API add."""
    provider = clusterapi.everything(subject) if given["cluster_api_provider"] else []
    return [*provider, *(clusterapi.clusters(subject) if given["cluster_api_clusters"] else ())]


def _pods(given: Mapping[str, object]) -> PodOptions | None:
    """Return how the operator runs control planes in Pods; None if it runs none.

    Raises:
        InputError: An image without Pods, or Pods without an image.
    """
    from tenantry.hostedpods import versionimages

    images = versionimages.read(cast("tuple[str, ...]", given["hosted_image"]))
    if not given["virtual_control_planes"]:
        if images or given["hosted_storage_class"] or given["hosted_shards"] != 1 or given["hosted_etcd"]:
            raise InputError(
                "--hosted-etcd, --hosted-image, --hosted-storage-class and --hosted-shards need"
                " --virtual-control-planes"
            )
        return None
    if images is None:
        raise InputError(
            "--virtual-control-planes needs --hosted-image with the name of an image that the nodes can pull:"
            " `tenantry image build --with-hosted` makes it"
        )
    return PodOptions(
        image=images.default,
        others=images.values(),
        storage_class=str(given["hosted_storage_class"]),
        service_type=str(given["hosted_service"]),
        shards=cast("int", given["hosted_shards"]),
        has_etcd=bool(given["hosted_etcd"]),
    )


async def _apply(client: Client, objects: list[Json]) -> dict[str, int]:
    """Apply manifests and return how many were created, changed and unchanged."""
    from tenantry.engine.tasks import all_of
    from tenantry.install import apply, fallback, installed
    from tenantry.views.installation import read

    await installed.require_no_release(client)
    live = await all_of(read(client, value) for value in objects)
    wanted = {_key(value): value for value in objects}
    before = dict(zip(map(_key, objects), live, strict=True))
    counts = {"created": 0, "changed": 0, "unchanged": 0}

    def applied(value: Json) -> None:
        # Kinds of other projects are not among the objects: they are only created.
        was, like = before.get(_key(value)), wanted.get(_key(value))
        # Not by resourceVersion: controllers write statuses, annotations and aggregated rules in between.
        same = was is not None and restricted(was, like) == restricted(value, like)
        word = "created" if was is None else "unchanged" if same else "changed"
        counts[word] += 1
        output.talk(f"{name_of(value)} {word}")

    await apply.apply(client, objects, applied=applied)
    if any(fallback.is_mutating(each) for each in objects):
        await apply.in_force(client)
    return counts


def _key(value: Json) -> tuple[str, str, str]:
    return value["kind"], value["metadata"].get("namespace", ""), value["metadata"]["name"]


def name_of(value: Json) -> str:
    """Return the name of an object in messages, as in `ClusterRole tenantry-admin`."""
    kind, namespace, name = _key(value)
    return f"{kind} {object_key(namespace, name)}"
