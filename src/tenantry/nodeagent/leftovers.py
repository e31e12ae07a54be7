"""Decides what must be removed from a node between two tenants: pure.

    images        those that the node did not have under this digest before the slice, unpinned and unused
    containers    of deleted pods, sandboxes included
    folders       of deleted pods: volumes such as emptyDirs, and logs

A finished pod of the slice counts as deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec


class NodeImage(msgspec.Struct, frozen=True):
    """One name of an image.

    Args:
        name: The name in containerd; an image has several.
        digest: The digest of the image.
        pinned: Whether it belongs to the node itself.
    """

    name: str
    digest: str
    pinned: bool = False


class PodContainer(msgspec.Struct, frozen=True):
    """A container or the sandbox of a pod, running or not.

    Args:
        id: The id in containerd.
        pod_uid: The pod's uid for the kubelet; for a static pod, the digest of its file.
        pod: NAMESPACE/NAME.
        image: The name of its image.
    """

    id: str
    pod_uid: str
    pod: str
    image: str


class PodFolder(msgspec.Struct, frozen=True):
    """A folder of a pod."""

    path: Path
    pod_uid: str


class NodePod(msgspec.Struct, frozen=True):
    """A pod of this node in the API server.

    Args:
        key: NAMESPACE/NAME.
        uids: The uids that the kubelet may use for it.
        slice: The slice that it is bound to; "" for none.
        finished: Whether all its containers have ended for good.
    """

    key: str
    uids: frozenset[str]
    slice: str
    finished: bool


class NodeContents(msgspec.Struct, frozen=True, kw_only=True):
    """The images, containers and folders on a node."""

    images: tuple[NodeImage, ...] = ()
    containers: tuple[PodContainer, ...] = ()
    folders: tuple[PodFolder, ...] = ()


class Leftovers(msgspec.Struct, frozen=True, kw_only=True):
    """What must be removed.

    Args:
        images: The names of images.
        containers: Containers of deleted pods.
        folders: Folders of deleted pods.
        running: Running pods of the slice, which the agent must not end.
    """

    images: tuple[str, ...] = ()
    containers: tuple[PodContainer, ...] = ()
    folders: tuple[PodFolder, ...] = ()
    running: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether anything is left."""
        return bool(self.images or self.containers or self.folders or self.running)


def find(found: NodeContents, pods: Sequence[NodePod], slice_name: str, before: Mapping[str, str]) -> Leftovers:
    """Return what must be removed.

    Args:
        found: The contents of the node, listed before the pods, so that a new pod is known.
        pods: All pods of the node.
        slice_name: The slice that gives the node back.
        before: From a name to a digest, of the images before the slice; {} if they are not known for certain.
    """
    # A running pod's images and folders stay in use: the operator ends pods, with their grace periods, not the agent.
    running = tuple(sorted(pod.key for pod in pods if pod.slice == slice_name and not pod.finished))
    alive = {uid for pod in pods if pod.slice != slice_name or not pod.finished for uid in pod.uids}
    containers = tuple(each for each in found.containers if each.pod_uid not in alive)
    used = {each.image for each in found.containers if each.pod_uid in alive}
    # A digest may have several names: if one is used or pinned, all stay.
    kept = {image.digest for image in found.images if image.pinned or image.name in used or image.digest in used}
    images = (each for each in found.images if each.digest not in kept and before.get(each.name) != each.digest)
    return Leftovers(
        images=tuple(sorted(each.name for each in images)),
        containers=containers,
        folders=tuple(each for each in found.folders if each.pod_uid not in alive),
        running=running,
    )


def count(before: Leftovers, after: Leftovers) -> dict[str, int]:
    """Return the numbers of images, containers and folders that were removed."""
    return {
        "images": len(set(before.images) - set(after.images)),
        "containers": len(set(before.containers) - set(after.containers)),
        "folders": len(set(before.folders) - set(after.folders)),
    }


def messages(left: Leftovers, problems: Mapping[str, str], *, most: int, longest: int) -> tuple[str, ...]:
    """Return messages about what is left.

    Args:
        left: What is left.
        problems: From an image's name, a container's id or a folder's path to why it could not be removed.
        most: The maximal number of messages.
        longest: The maximal length of each.
    """
    whats = [
        *(f"pod {key} runs" for key in left.running),
        *(_message(f"container of pod {each.pod}", problems.get(each.id, "")) for each in left.containers),
        *(_message(f"folder {each.path}", problems.get(str(each.path), "")) for each in left.folders),
        *(_message(f"image {name}", problems.get(name, "")) for name in left.images),
    ]
    return tuple(each if len(each) <= longest else f"{each[: longest - 1]}…" for each in whats[:most])


def _message(what: str, why: str) -> str:
    return f"{what}: {why}" if why else what


def snapshot(images: Iterable[NodeImage]) -> dict[str, str]:
    """Return the digests of images by name."""
    return {each.name: each.digest for each in images}
