"""The real nodes of a cluster as a whole: their number, their network, and their files on this machine."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from tenantry.api.errors import InputError, LocalError
from tenantry.local import build, pki
from tenantry.local.files import explain
from tenantry.local.paths import ClusterPaths
from tenantry.local.real import (
    cgroups,
    images,
    limits,
    loops,
    memberships,
    network,
    nodevolumes,
    planebridges,
    recipes,
    requirements,
    settings,
)
from tenantry.local.real.network import MAX_NODES
from tenantry.local.real.node import folder_of, images_of
from tenantry.local.spec import ClusterSpec, RealNode, RealNodes, write_spec

_SYSTEM_MIB = 3072
_SMALLEST_MIB = 1024


def prepare(
    paths: ClusterPaths, port: int, before: RealNodes | None, count: int | None, say: Callable[[str], None]
) -> RealNodes | None:
    """Return the real nodes of a cluster that is about to start, and set up their network.

    Args:
        paths: The cluster's.
        port: The port of its API server.
        before: The nodes that it had.
        count: The wanted number of nodes; None for as many as before.
        say: Called with a message when a setting of the machine was changed.

    Raises:
        InputError: The number is too large.
        LocalError: This machine cannot run real nodes, or their programs are not built.
    """
    wanted = count if count is not None else len(before.nodes) if before else 0
    if not wanted:
        return None
    requirements.check()
    limits.raise_them(say)
    paths.folder.mkdir(parents=True, exist_ok=True)
    if lacks := nodevolumes.lacking(paths.folder):
        say(f"the sizes of volumes are not enforced on this machine: {lacks}")
    binaries, dns = build.built(build.NODES), build.built(build.DNS)
    if binaries is None or dns is None:
        raise LocalError("the programs of nodes are not built: run `tenantry local build --with-nodes --with-dns`")
    _own_images(images_of(paths), binaries, dns)
    kept = before.nodes if before else ()
    block = network.lay(network.identity(paths.folder), port, before.block if before else None)
    planebridges.lay_again(paths)
    return RealNodes(
        block=block,
        binaries=str(binaries.folder),
        memory_reserved_mib=_reserved(wanted),
        nodes=kept if count is None else counted(kept, count),
    )


def _own_images(folder: Path, binaries: build.Binaries, dns: build.Binaries) -> None:
    folder.mkdir(exist_ok=True)
    for recipe in (recipes.pause(binaries), recipes.coredns_of(dns, settings.coredns_image(dns.folder.name))):
        target = folder / images.file_name(recipe.reference)
        if not target.exists():
            images.write(recipe, target)


def counted(before: tuple[RealNode, ...], count: int) -> tuple[RealNode, ...]:
    """Return this number of nodes: the first of the present ones, and new ones after them.

    Raises:
        InputError: The number is too large.
    """
    if not 0 <= count <= MAX_NODES:
        raise InputError(f"--nodes {count} must be from 0 to {MAX_NODES} for real nodes")
    nodes = before[:count]
    while len(nodes) < count:
        nodes = (*nodes, new(nodes))
    return nodes


def new(nodes: tuple[RealNode, ...]) -> RealNode:
    """Return a new node with an unused number.

    Raises:
        InputError: All numbers are used.
    """
    used = {each.number for each in nodes}
    number = next((n for n in range(1, MAX_NODES + 1) if n not in used), 0)
    if not number:
        raise InputError(f"there may be at most {MAX_NODES} real nodes")
    return RealNode(name=f"real-{number}", number=number)


def at_home(paths: ClusterPaths, real: RealNodes | None) -> RealNodes | None:
    """Return the nodes whose machines serve the cluster itself."""
    if real is None:
        return None
    nodes = tuple(each for each in real.nodes if memberships.read(paths, each.name) is None)
    return msgspec.structs.replace(real, nodes=nodes)


def without(real: RealNodes, name: str) -> RealNodes:
    """Return the nodes without one.

    Raises:
        InputError: No node has this name.
    """
    check_name(real, name)
    return msgspec.structs.replace(real, nodes=tuple(each for each in real.nodes if each.name != name))


def check_name(real: RealNodes, name: str) -> str:
    """Return the name if a node has it.

    Raises:
        InputError: No node has it.
    """
    names = [each.name for each in real.nodes]
    if name not in names:
        raise InputError(f'there is no real node "{name}"; there are {", ".join(names) or "none"}')
    return name


def _reserved(count: int) -> int:
    """Return the part of this machine's memory that each of several nodes leaves to the others, in MiB."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    share = max((total - _SYSTEM_MIB) // count, _SMALLEST_MIB)
    return max(total - share, 0)


def remove(folder: Path) -> None:
    """Remove cgroups, networks and loop devices of a cluster's real nodes, and of its control planes.

    Also after a crash.

    Raises:
        LocalError: A process outside of the nodes uses a volume.
    """
    name = network.identity(folder)
    cgroups.remove(name)
    network.remove(name)
    planebridges.remove_all(folder)
    try:
        loops.detach(folder)
    except OSError as error:
        raise explain(error, folder) from error


def write(paths: ClusterPaths, spec: ClusterSpec, real: RealNodes) -> set[str] | None:
    """Write the wanted real nodes of a running cluster; return the names of removed ones, None if nothing changes.

    Raises:
        InputError: A node that would be removed serves the cluster of a tenant.
    """
    changed = msgspec.structs.replace(spec, real=real)
    if changed == spec:
        return None
    known = {each.name: each for each in spec.real.nodes} if spec.real else {}
    for name in sorted(set(spec.real_names) - set(changed.real_names)):
        # One from outside is never the host's: its owner removes it, wherever it serves.
        if not known[name].token:
            memberships.check_at_home(paths, name)
    pki.ensure(paths.pki, pki.leaves(changed.server_addresses, real.addressed()), dt.datetime.now(dt.UTC))
    write_spec(paths, changed)
    return set(spec.real_names) - set(changed.real_names)


async def forget(paths: ClusterPaths, names: Iterable[str]) -> None:
    """Delete the Node objects and the files of removed nodes."""
    # Imported here: most calls of this module need no client.
    from tenantry.local import bootstrap

    gone = sorted(names)
    await bootstrap.delete_nodes(paths.kubeconfig("admin"), gone)
    for name in gone:
        memberships.wipe(paths, name)
        memberships.forget(paths, name)
        shutil.rmtree(folder_of(paths, name), ignore_errors=True)
