"""The images of sized volumes: sparse files with a file system of ext4 each, in a folder of their node.

    CLUSTER/nodes/NAME/disks/pvc-UID.img     whole, and mounted when the node runs
    CLUSTER/nodes/NAME/disks/pvc-UID.new     not whole yet: a killed provisioner has left it
    CLUSTER/nodes/NAME/disks/lock            held while images of the node are mounted, unmounted or deleted

The file system of an image has one folder for the pod, `volumes.INSIDE`. All sizes of a cluster together never exceed
the room on the disk, so that the files of one tenant leave the disk to the volumes of others.

Only this module writes images. Pods reach the mounted file system, and neither the image nor its device: an image that
a pod could write would be an attack on the kernel that mounts it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tenantry.local.locks import holding
from tenantry.local.real.volumes import INSIDE, is_name

FOLDER = "disks"
IMAGE = ".img"
_UNFINISHED = ".new"
_TREE = ".tree-"
_LOCK = "lock"
_MKFS = "mkfs.ext4"
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# Nothing of the file is written that reads as zeros already. Without blocks for root, a pod gets all that is left.
_OPTIONS = ("-q", "-F", "-m", "0", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0")
_MKFS_SECONDS = 300


def prepare(folder: Path) -> None:
    """Create the folder of the images of a node, which only root may enter."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)


def lock(folder: Path) -> Path:
    """Return the file of the lock of a folder of images."""
    return folder / _LOCK


def names(folder: int) -> list[str]:
    """Return the names of the volumes with a whole image.

    Args:
        folder: The descriptor of the folder.
    """
    found = (each.removesuffix(IMAGE) for each in os.listdir(folder) if each.endswith(IMAGE))
    return sorted(each for each in found if is_name(each))


def open_image(folder: int, name: str) -> int:
    """Open an image for reading and writing, and return its descriptor.

    Args:
        folder: The descriptor of the folder.
        name: The name of the volume.

    Raises:
        OSError: There is none, or another kind of file.
    """
    image = os.open(name + IMAGE, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(image).st_mode):
        os.close(image)
        raise OSError(errno.EINVAL, "the image of a volume must be a regular file", name)
    return image


def make(folder: Path, name: str, size: int, cluster: Path) -> None:
    """Make the image of a volume; one that is there stays as it is.

    Args:
        folder: The folder of the images of the node.
        name: The name of the volume.
        size: In bytes.
        cluster: The folder of the cluster, whose volumes share the disk.

    Raises:
        OSError: The disk has no room, or the file system cannot be made.
    """
    if (folder / f"{name}{IMAGE}").exists():
        return
    new = folder / f"{name}{_UNFINISHED}"
    new.unlink(missing_ok=True)
    try:
        with holding(cluster / "volumes.lock"):
            _reserve(new, size, cluster)
        format_image(new)
        # A rename may reach the disk before the data: after a power failure, the image would be no file system.
        with new.open("rb") as file:
            os.fsync(file.fileno())
        new.rename(folder / f"{name}{IMAGE}")
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def remove(folder: int, name: str) -> None:
    """Delete the image of a volume, whole or not; arguments as for `open_image`."""
    for suffix in (IMAGE, _UNFINISHED):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name + suffix, dir_fd=folder)


def sweep(folder: Path) -> None:
    """Delete images that a killed provisioner has left unfinished."""
    for each in folder.glob(f"*{_UNFINISHED}"):
        each.unlink(missing_ok=True)
    for each in folder.glob(f"{_TREE}*"):
        shutil.rmtree(each)


def format_image(image: Path) -> None:
    """Make a file system in a file, with the folder for the pod, which any user may write to.

    The folder above is private, so other users of the machine cannot get in.

    Raises:
        OSError: `mkfs.ext4` is missing or fails.
    """
    with tempfile.TemporaryDirectory(prefix=_TREE, dir=image.parent) as tree:
        inside = Path(tree) / INSIDE
        inside.mkdir()
        inside.chmod(0o777)
        command = (program(), *_OPTIONS, "-d", tree, image)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_MKFS_SECONDS)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise OSError(errno.EIO, f"{_MKFS}: {lines[-1] if lines else f'exit code {done.returncode}'}", image.name)


def program() -> str:
    """Return the path of `mkfs.ext4`.

    Raises:
        FileNotFoundError: It is not installed.
    """
    found = shutil.which(_MKFS, path=_PATH) or shutil.which(_MKFS)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "not installed", _MKFS)
    return found


def _reserve(new: Path, size: int, cluster: Path) -> None:
    """Create a sparse file if the disk has room for it and for what other images may still grow."""
    about = os.statvfs(new.parent)
    promised = sum(max(0, each.st_size - each.st_blocks * 512) for each in _images(cluster))
    if size > about.f_bavail * about.f_frsize - promised:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), new.name)
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, size)
    finally:
        os.close(descriptor)


def _images(cluster: Path) -> Iterator[os.stat_result]:
    for pattern in (f"nodes/*/{FOLDER}/pvc-*", f"hosted/*/nodes/*/{FOLDER}/pvc-*"):
        for each in cluster.glob(pattern):
            # Another provisioner of the cluster may delete it meanwhile.
            with contextlib.suppress(FileNotFoundError):
                yield each.stat(follow_symlinks=False)
