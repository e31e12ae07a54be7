"""`tenantry image`: builds OCI images from local files, and loads them into the real nodes of a local cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from tenantry.api.errors import InputError
from tenantry.cli import output
from tenantry.cli.local.name import name_option
from tenantry.hostedpods import image as hostedimage
from tenantry.local.cluster import LocalCluster
from tenantry.local.progress import StreamProgress
from tenantry.local.real import images, loading
from tenantry.local.real.images import ImageRecipe


@click.group()
def image() -> None:
    """Build container images from local files, and load them into real nodes, without registry or daemon."""


@image.command()
@click.argument("reference", metavar="REFERENCE")
@click.argument("files", nargs=-1, metavar="FILE:PATH...")
@click.option(
    "--with-hosted", is_flag=True, help="Build the image of VirtualControlPlanes in Pods, instead of one of FILEs."
)
@click.option(
    "--hosted-version",
    "version",
    default="",
    metavar="VERSION",
    help="With --with-hosted: minor version of Kubernetes (default: the latest).",
)
@click.option("--entrypoint", "-e", multiple=True, metavar="WORD", help="Word of the entrypoint. May be repeated.")
@click.option(
    "--argument", "-a", multiple=True, metavar="WORD", help="Argument that pods may replace. May be repeated."
)
@click.option("--user", default="", metavar="UID[:GID]", help="User that the program runs as (default: root).")
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write (default: the reference with .tar).",
)
def build(
    reference: str,
    files: tuple[str, ...],
    *,
    entrypoint: tuple[str, ...],
    argument: tuple[str, ...],
    user: str,
    target: Path | None,
    with_hosted: bool,
    version: str,
) -> None:
    r"""Write an image as a tar file. Prints its name.

    FILE is a file or folder of this machine, PATH is where it is in the image. Programs must be static, or come with
    their libraries.

    \b
      tenantry image build tenantry.local/web:1 ./web:/web -e /web
      tenantry image load tenantry.local_web_1.tar
      tenantry image build --with-hosted registry.example/hosted:1 --to hosted.tar
    """
    target = target or Path(images.file_name(images.check_reference(reference)))
    if with_hosted:
        if files or entrypoint or argument or user:
            raise InputError("--with-hosted names the contents of the image: leave the others out")
        with StreamProgress() as progress:
            hostedimage.write(progress, reference, target, version)
        click.echo(target)
        return
    if version:
        raise InputError("--hosted-version needs --with-hosted")
    if not files:
        raise InputError("FILE:PATH is missing: name the files of the image, or --with-hosted")
    placed = dict(_placed(text) for text in files)
    images.write(
        ImageRecipe(reference=reference, files=placed, entrypoint=entrypoint, command=argument, user=user), target
    )
    click.echo(target)


def _placed(text: str) -> tuple[str, Path]:
    source, colon, place = text.rpartition(":")
    if not colon or not source or not place.startswith("/"):
        raise InputError(f'"{text}" must be FILE:PATH, PATH beginning with "/"')
    if not Path(source).exists():
        raise InputError(f'there is no file "{source}"')
    return place, Path(source)


@image.command()
@name_option
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def load(*, name: str, file: Path) -> None:
    """Load an image from a tar file into every real node of a cluster, also into later ones. Prints its reference."""
    cluster = LocalCluster(name)
    nodes = [each.name for each in cluster.real().nodes]
    reference = images.reference_of(file)
    loaded = asyncio.run(loading.load(cluster.paths, cluster.real().binaries, nodes, file, reference))
    click.echo(reference)
    missed = sorted(set(nodes) - set(loaded))
    if missed:
        output.talk(f"{', '.join(missed)} did not run and will load it at the start")
