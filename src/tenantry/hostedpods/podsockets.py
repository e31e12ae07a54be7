"""The folder of Unix sockets in which the containers of a control plane's Pod meet: pure.

    on the kernel of the node   an emptyDir in memory, /sockets; the process has it in its own folder, paths are short
    in a sandbox                /dev/shm, which all containers of a Pod share in every runtime

gVisor keeps a socket that is made in an emptyDir to the container that made it, unless containerd passes on annotations
of Pods, which is a setting of each node that no API shows. It makes one /dev/shm for all containers of a Pod by itself.

Source: gvisor.dev/gvisor, pkg/shim/v1/utils/volumes.go, `configureShm`; docs/decisions/0087.
"""

from __future__ import annotations

import msgspec

from tenantry.api.model import Json

_VOLUME = "sockets"
_IN_PROCESS = "sockets/"
_SHARED = "/dev/shm/"  # noqa: S108 - of the Pod alone


class PodSockets(msgspec.Struct, frozen=True):
    """Where the sockets of a Pod are.

    Args:
        is_sandboxed: Whether the Pod is in a sandbox.
    """

    is_sandboxed: bool = False

    @property
    def of_process(self) -> str:
        """What the paths of the process begin with: it runs in its own folder."""
        return _SHARED if self.is_sandboxed else _IN_PROCESS

    @property
    def folder(self) -> str:
        """What the paths of all other containers begin with."""
        return _SHARED if self.is_sandboxed else f"/{_IN_PROCESS}"

    @property
    def volumes(self) -> tuple[Json, ...]:
        """The volume of the Pod; /dev/shm is there without one."""
        return () if self.is_sandboxed else ({"name": _VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},)

    @property
    def mounted(self) -> dict[str, str]:
        """From the name of the volume to where a container but that of the process has it."""
        return {} if self.is_sandboxed else {_VOLUME: self.folder.rstrip("/")}

    def mounts(self, home: str = "") -> tuple[Json, ...]:
        """Return the mount of a container.

        Args:
            home: The folder in which the process runs, for a container with its paths; "" for all others.
        """
        return tuple({"name": name, "mountPath": f"{home}{path}"} for name, path in self.mounted.items())


USUAL = PodSockets()
"""Of a Pod on the kernel of its node."""
