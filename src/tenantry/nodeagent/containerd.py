"""Lists and removes images and containers of a node with containerd's command `ctr`.

The kubelet copes with such removals: it requests the same of the runtime, and accepts "not found" as success.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from tenantry.api.errors import RetryableError
from tenantry.kube import program
from tenantry.nodeagent.leftovers import NodeImage, PodContainer

_SECONDS = 60.0
# containerd's CRI plugin sets these labels on containers and images of Kubernetes.
_PINNED = "io.cri-containerd.pinned=pinned"
_UID = "io.kubernetes.pod.uid"
_POD = ("io.kubernetes.pod.namespace", "io.kubernetes.pod.name")


class _Info(msgspec.Struct, frozen=True, rename="pascal"):
    """The output of `ctr containers info`."""

    id: str = msgspec.field(name="ID")
    labels: dict[str, str] | None = None
    image: str = ""


class _LogLine(msgspec.Struct, frozen=True):
    """A line of a log in JSON."""

    msg: str


_info = msgspec.json.Decoder(_Info)


class Containerd:
    """The containerd of a node.

    Args:
        ctr: The command.
        address: Its socket.
    """

    def __init__(self, ctr: Path, address: Path) -> None:
        self._command = (str(ctr), "--address", str(address), "--namespace", "k8s.io")

    async def images(self) -> tuple[NodeImage, ...]:
        """Return all names of images.

        Raises:
            RetryableError: containerd does not answer.
        """
        lines = (await self._run("images", "ls")).splitlines()[1:]
        # REF TYPE DIGEST SIZE PLATFORMS LABELS; the size consists of two words.
        rows = [row for line in lines if len(row := line.split()) >= 4]  # noqa: PLR2004
        return tuple(NodeImage(name=row[0], digest=row[2], pinned=_PINNED in row[-1].split(",")) for row in rows)

    async def containers(self) -> tuple[PodContainer, ...]:
        """Return the containers of pods, sandboxes among them.

        Raises:
            RetryableError: containerd does not answer.
        """
        ids = (await self._run("containers", "ls", "--quiet")).split()
        found: list[PodContainer] = []
        for each in ids:
            output, problem = await self._try("containers", "info", each)
            if problem:
                continue  # it was removed meanwhile
            info = _info.decode(output)
            labels = info.labels or {}
            if _UID in labels:
                pod = "/".join(labels.get(key, "") for key in _POD)
                found.append(PodContainer(id=info.id, pod_uid=labels[_UID], pod=pod, image=info.image))
        return tuple(found)

    async def remove_images(self, names: Iterable[str]) -> dict[str, str]:
        """Remove images, and return why some stay, by their names."""
        problems: dict[str, str] = {}
        for name in names:
            # Without --sync, the garbage collector removes the content some time after the agent has reported success.
            _, problem = await self._try("images", "rm", "--sync", name)
            if problem:
                problems[name] = problem
        return problems

    async def remove_container(self, found: PodContainer) -> str:
        """Kill a container and remove it with its files; return why that failed, "" if it did not."""
        # A container without a task has nothing to kill: only the removal of the container decides.
        await self._try("tasks", "kill", "--all", "--signal=SIGKILL", found.id)
        await self._try("tasks", "rm", "--force", found.id)
        _, problem = await self._try("containers", "rm", found.id)
        await self._try("sandboxes", "rm", "--force", found.id)
        return problem

    async def _run(self, *arguments: str) -> str:
        output, problem = await self._try(*arguments)
        if problem:
            raise RetryableError(f"`ctr {' '.join(arguments)}` failed: {problem}")
        return output

    async def _try(self, *arguments: str) -> tuple[str, str]:
        """Run the command; return its output, and why it failed, "" if it did not."""
        try:
            done = await program.run((*self._command, *arguments), timeout_seconds=_SECONDS)
        except TimeoutError:
            return "", f"no answer after {_SECONDS:.0f} s"
        if done.code:
            return "", _last(done.err) or f"exit code {done.code}"
        return done.out.decode(errors="replace"), ""


def _last(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    if not lines:
        return ""
    return _message(lines[-1])


def _message(line: str) -> str:
    """Return the message of a log line: containerd's commands write some lines as JSON."""
    try:
        return msgspec.json.decode(line, type=_LogLine).msg
    except msgspec.MsgspecError:
        return line
