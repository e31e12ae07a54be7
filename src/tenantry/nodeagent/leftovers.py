"""What of all that is on a node has to go between two tenants: pure.

    images        those that were not there under this digest before the slice, are not pinned, and that nothing uses
    containers    of pods that are no more, sandboxes among them
    folders       of the same pods: volumes such as emptyDirs, and logs

A pod that has ended counts as no more where it was the slice's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec


class NodeImage(msgspec.Struct, frozen=True):
    """A name of an image.

    Args:
        name: As containerd has it; an image has several.
        digest: Of what it names.
        pinned: It belongs to the node, whoever uses it.
    """

    name: str
    digest: str
    pinned: bool = False


class PodContainer(msgspec.Struct, frozen=True):
    """A container or the sandbox of a pod, running or not.

    Args:
        id: containerd's.
        pod_uid: As the kubelet has it: of a static pod, the digest of its file.
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
    """A pod of this node, as the API server has it.

    Args:
        key: NAMESPACE/NAME.
        uids: What the kubelet may call it.
        slice: Whose pod it is; "" for none.
        finished: Nothing of it runs, or ever will.
    """

    key: str
    uids: frozenset[str]
    slice: str
    finished: bool


class NodeContents(msgspec.Struct, frozen=True, kw_only=True):
    """What is on a node."""

    images: tuple[NodeImage, ...] = ()
    containers: tuple[PodContainer, ...] = ()
    folders: tuple[PodFolder, ...] = ()


class Leftovers(msgspec.Struct, frozen=True, kw_only=True):
    """What has to go.

    Args:
        images: Their names.
        containers: Of pods that are no more.
        folders: The same.
        running: Pods of the slice that run: they are not the agent's to end.
    """

    images: tuple[str, ...] = ()
    containers: tuple[PodContainer, ...] = ()
    folders: tuple[PodFolder, ...] = ()
    running: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether anything has to go."""
        return bool(self.images or self.containers or self.folders or self.running)


def find(found: NodeContents, pods: Sequence[NodePod], slice_name: str, before: Mapping[str, str]) -> Leftovers:
    """Return what has to go.

    Args:
        found: What is there; looked at before the pods, so that one that comes meanwhile is known.
        pods: All pods of the node.
        slice_name: The slice that gives the node back.
        before: Name to digest of the images that were there before it; {} where that is not known for certain.
    """
    running = tuple(sorted(pod.key for pod in pods if pod.slice == slice_name and not pod.finished))
    alive = {uid for pod in pods if pod.slice != slice_name or not pod.finished for uid in pod.uids}
    containers = tuple(each for each in found.containers if each.pod_uid not in alive)
    used = {each.image for each in found.containers if each.pod_uid in alive}
    # Under one digest there are several names: of what is used or pinned, all stay.
    kept = {image.digest for image in found.images if image.pinned or image.name in used or image.digest in used}
    images = (each for each in found.images if each.digest not in kept and before.get(each.name) != each.digest)
    return Leftovers(
        images=tuple(sorted(each.name for each in images)),
        containers=containers,
        folders=tuple(each for each in found.folders if each.pod_uid not in alive),
        running=running,
    )


def count(before: Leftovers, after: Leftovers) -> dict[str, int]:
    """Return how many of each there were that are gone."""
    return {
        "images": len(set(before.images) - set(after.images)),
        "containers": len(set(before.containers) - set(after.containers)),
        "folders": len(set(before.folders) - set(after.folders)),
    }


def told(left: Leftovers, problems: Mapping[str, str], *, most: int, longest: int) -> tuple[str, ...]:
    """Return what is left, as people read it.

    Args:
        left: What is left.
        problems: From an image's name, a container's id or a folder's path to why it could not be removed.
        most: How many things at most.
        longest: How many characters each at most.
    """
    whats = [
        *(f"pod {key} runs" for key in left.running),
        *(_told(f"container of pod {each.pod}", problems.get(each.id, "")) for each in left.containers),
        *(_told(f"folder {each.path}", problems.get(str(each.path), "")) for each in left.folders),
        *(_told(f"image {name}", problems.get(name, "")) for name in left.images),
    ]
    return tuple(each if len(each) <= longest else f"{each[: longest - 1]}…" for each in whats[:most])


def _told(what: str, why: str) -> str:
    return f"{what}: {why}" if why else what


def snapshot(images: Iterable[NodeImage]) -> dict[str, str]:
    """Return name to digest of images."""
    return {each.name: each.digest for each in images}
