"""`tenantry install`: prints or applies the manifests of Tenantry, and reports what changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click
import msgspec
from typing_extensions import override

from tenantry.api.errors import InputError, NotFound
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.model import Json
from tenantry.cli import output, session
from tenantry.cli.target import Target, read_environment, resolve, takes_target
from tenantry.install import clusterapi, manifests
from tenantry.install.planepods import PodOptions

if TYPE_CHECKING:
    from tenantry.kube.client import Client


class _Install(click.Command):
    """Needs no cluster for --dry-run: the manifests are the same for all clusters."""

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
        if ctx.params["dry_run"]:
            kubeconfig, context, name = (ctx.params[flag] for flag in ("kubeconfig", "context", "name"))
            if kubeconfig or context or name:
                # A cluster that the user names must exist; the dry run reads its credentials and sends no request.
                resolve(kubeconfig, context, name, read_environment()).connection()
            subject = manifests.SERVICE_ACCOUNT
            more = _for_cluster_api(ctx.params, subject)
            output.print_documents([*manifests.everything(image, _pods(ctx.params)), *more], form or "yaml")
            return None
        if form:
            raise InputError("-o is about what --dry-run prints; add --dry-run, or leave it out")
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
@click.option("--dry-run", is_flag=True, help="Print the manifests without applying them; no cluster is needed.")
@output.output_option("yaml", "json", text="With --dry-run: YAML documents (the default), or one JSON List.")
def install(target: Target, *, image: str, dry_run: bool, form: str | None, **options: object) -> None:
    r"""Install Tenantry in a cluster, or update it.

    The command applies kinds, rights, policies, and the operator with two replicas in the namespace tenantry-system. It
    needs an administrator's rights, and can be repeated.

    \b
      tenantry install --context prod --image registry.example/tenantry:1
      tenantry install --dry-run > tenantry.yaml
    """
    del dry_run, form  # handled by _Install.invoke
    if target.local_name is not None:
        # The Deployment's ServiceAccount would take the rights away from the operator that runs beside the cluster.
        objects = manifests.foundation(manifests.LOCAL_USER)
        if options["virtual_control_planes"]:
            raise InputError("a local cluster runs control planes itself: leave --virtual-control-planes out")
        output.talk(f"local cluster {target.local_name!r}: its operator runs beside it, so none is deployed")
    else:
        objects = manifests.everything(image, _pods(options))
    subject = manifests.SERVICE_ACCOUNT if target.local_name is None else manifests.LOCAL_USER
    objects += _for_cluster_api(options, subject)
    counts = session.run(target, lambda client: _apply(client, objects))
    output.talk(", ".join(f"{number} {word}" for word, number in counts.items()))
    if target.local_name is None:
        output.talk(f"the operator is starting: kubectl -n {SYSTEM_NAMESPACE} rollout status deployment")


def _write_repository(folder: Path) -> None:
    """Write the files of `clusterctl`, and say how it finds them.

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
    from tenantry.install import apply

    live = await all_of(_read(client, value) for value in objects)
    wanted = {_key(value): value for value in objects}
    before = dict(zip(map(_key, objects), live, strict=True))
    counts = {"created": 0, "changed": 0, "unchanged": 0}

    def applied(value: Json) -> None:
        # Kinds of other projects are not among the objects: they are only created.
        was, like = before.get(_key(value)), wanted.get(_key(value))
        # Not by resourceVersion: controllers write statuses, annotations and aggregated rules in between.
        same = was is not None and _only(was, like) == _only(value, like)
        word = "created" if was is None else "unchanged" if same else "changed"
        counts[word] += 1
        output.talk(f"{name_of(value)} {word}")

    await apply.apply(client, objects, applied=applied)
    await apply.in_force(client)
    return counts


async def _read(client: Client, value: Json) -> Json | None:
    """Return the live object of a manifest; None if it does not exist."""
    from tenantry.install.waves import resource_of
    from tenantry.kube import wire

    meta = value["metadata"]
    try:
        answer = await client.request("GET", wire.path(resource_of(value), meta.get("namespace", ""), meta["name"]))
    except NotFound:
        return None
    return msgspec.json.decode(answer, type=Json)


def _only(value: object, like: object) -> object:
    """Return the part of a value that a manifest has fields for."""
    if isinstance(value, dict) and isinstance(like, dict):
        given, wanted = cast("Json", value), cast("Json", like)
        return {key: _only(given.get(key), inner) for key, inner in wanted.items()}
    if isinstance(value, list) and isinstance(like, list):
        items, models = cast("list[object]", value), cast("list[object]", like)
        if len(items) == len(models):
            return [_only(item, model) for item, model in zip(items, models, strict=True)]
    return cast("object", value)


def _key(value: Json) -> tuple[str, str, str]:
    return value["kind"], value["metadata"].get("namespace", ""), value["metadata"]["name"]


def name_of(value: Json) -> str:
    """Return the name of an object in messages, as in `ClusterRole tenantry-admin`."""
    kind, namespace, name = _key(value)
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
