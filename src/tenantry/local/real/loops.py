"""Loop devices: block devices whose blocks are in a file of this machine.

Each device is attached with the flag "autoclear": the kernel detaches it when the last mount and the last descriptor
are gone. So a killed process leaves no device behind. The device of a mount lives as long as the mount, and the mount
as long as the namespaces of its node.

Source: loop(4); Linux, include/uapi/linux/loop.h.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import msgspec

_CONTROL = Path("/dev/loop-control")
_MAJOR = 7
_GET_FREE = 0x4C82
_CONFIGURE = 0x4C0A
_GET_STATUS = 0x4C05
_CLEAR = 0x4C01
_AUTOCLEAR = 4
# struct loop_info64: device and inode of the file, then what this module leaves at 0, then the flags and names.
_INFO = "=QQQQQIIII64s64s32sQQ"
# struct loop_config: the descriptor of the file, the block size (0: the default), loop_info64, reserved.
_CONFIG = f"=II{_INFO[1:]}64x"
_WAITS, _WAIT_SECONDS = 500, 0.02
_ATTEMPTS = 64
"""Another process may take the free device first, this often."""


class LoopDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A loop device in use.

    Args:
        number: Its number: it is /dev/loopNUMBER.
        file: The file with its blocks, as the kernel names it; " (deleted)" follows the name of a deleted file.
    """

    number: int
    file: str

    @property
    def path(self) -> str:
        """Return the path of the device."""
        return _path(self.number)


@contextlib.contextmanager
def attached(image: int) -> Generator[str]:
    """Attach a file to a loop device; the path of the device is valid inside the context.

    The same file gets the same device again: two devices of one file would be two file systems that overwrite each
    other. A mount that is made inside the context keeps the device.

    Args:
        image: The descriptor of the file, open for reading and writing.

    Raises:
        OSError: No loop device is free, or the kernel refuses.
    """
    device, path = _present(image) or _new(image)
    try:
        yield path
    finally:
        os.close(device)


def is_attached(image: int) -> bool:
    """Return whether a file has a loop device; argument as for `attached`."""
    found = _present(image)
    if found is None:
        return False
    os.close(found[0])
    return True


def below(folder: Path) -> list[LoopDevice]:
    """Return the loop devices whose files are, or were, in a folder."""
    # The kernel names the file of a device by its real path.
    top = f"{folder.resolve()}/"
    return [each for each in _all() if each.file.startswith(top)]


def detach(folder: Path) -> None:
    """Detach all loop devices of a folder whose nodes have ended, and wait until none is left.

    The kernel ends the mounts of a namespace a moment after its last process. It has no event for that which needs no
    further rights.

    Raises:
        OSError: A process outside of the nodes still uses one, or the kernel refuses.
    """
    for _ in range(_WAITS):
        left = below(folder)
        if not left:
            return
        _clear(folder, left)
        time.sleep(_WAIT_SECONDS)
    used = ", ".join(each.path for each in below(folder))
    if used:
        raise OSError(errno.EBUSY, f"another process still uses {used}: end the process, or unmount them", str(folder))


def _clear(folder: Path, devices: list[LoopDevice]) -> None:
    for each in devices:
        try:
            device = os.open(each.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            # Meanwhile, another file may have got the number.
            if each in below(folder):
                fcntl.ioctl(device, _CLEAR)
        except OSError as error:
            if error.errno != errno.ENXIO:  # it is detached
                raise
        finally:
            os.close(device)


def _path(number: int) -> str:
    return f"/dev/loop{number}"


def _all() -> Iterator[LoopDevice]:
    for entry in Path("/sys/block").glob("loop*/loop/backing_file"):
        # A device may be detached at any time.
        with contextlib.suppress(OSError):
            file = os.fsdecode(entry.read_bytes()).removesuffix("\n")
            yield LoopDevice(number=int(entry.parts[-3].removeprefix("loop")), file=file)


def _present(image: int) -> tuple[int, str] | None:
    """Return the open device of a file, and its path; None if the file has none."""
    about = os.fstat(image)
    for each in _all():
        try:
            device = os.open(each.path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            # Open, so that the kernel does not detach it any more.
            found = struct.unpack(_INFO, fcntl.ioctl(device, _GET_STATUS, bytes(struct.calcsize(_INFO))))
        except OSError:
            os.close(device)
            continue
        if (found[0], found[1]) == (_encoded(about.st_dev), about.st_ino):
            return device, each.path
        os.close(device)
    return None


def _encoded(device: int) -> int:
    """Return a device number as the kernel reports it (new_encode_dev in include/linux/kdev_t.h)."""
    major, minor = os.major(device), os.minor(device)
    return (minor & 0xFF) | (major << 8) | ((minor & ~0xFF) << 12)


def _new(image: int) -> tuple[int, str]:
    info = (0, 0, 0, 0, 0, 0, 0, 0, _AUTOCLEAR, b"", b"", b"", 0, 0)
    configuration = struct.pack(_CONFIG, image, 0, *info)
    control = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_ATTEMPTS):
            path = _path(number := fcntl.ioctl(control, _GET_FREE))
            # In a container, /dev may have no node of a device that the kernel has just added.
            with contextlib.suppress(FileExistsError):
                os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(_MAJOR, number))
            device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device, _CONFIGURE, configuration)
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:
                    raise
            else:
                return device, path
    finally:
        os.close(control)
    raise OSError(errno.EBUSY, "other processes take all free loop devices", str(_CONTROL))
