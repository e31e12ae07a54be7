"""Cleans one node between two tenants.

    reserved          record the present images, before a pod of the tenant can start
    asked (CLEANING)  remove everything else, search again, and report what is left (CLEANED)

The agent uses the identity of the node, which may write no other Node and read no other node's pods. It retries what it
cannot remove, and reports when that succeeds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from tenantry import __version__
from tenantry.api.cleaning import MAX_TEXT, MOST_LEFT, CleaningResult, slice_of_request
from tenantry.api.errors import ApiError, RetryableError
from tenantry.api.marks import CLEANED, CLEANING, NODE_AGENT, SLICE, SLICE_RESERVED
from tenantry.api.node import Node
from tenantry.engine.agent import until_told_to_stop
from tenantry.engine.cache import Change
from tenantry.engine.informer import Informer
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.nodeagent import leftovers, objects
from tenantry.nodeagent.baseline import Baseline, BaselineFile
from tenantry.nodeagent.containerd import Containerd
from tenantry.nodeagent.disk import Disk
from tenantry.nodeagent.leftovers import Leftovers, NodeContents

FIRST_PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between the first attempts, which are not reported: the kubelet removes most of it by itself."""

AGAIN_SECONDS = 20.0
"""Seconds between later attempts."""

log = logging.getLogger(__name__)


class CleanerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the agent.

    Args:
        node: The name of its node.
        ctr: containerd's command.
        address: containerd's socket.
        kubelet: The kubelet's root.
        logs: The folder of the logs of pods.
        state: The file of the recorded images.
    """

    node: str
    ctr: Path
    address: Path
    kubelet: Path
    logs: Path
    state: Path


class NodeCleaner:
    """The agent of one node.

    Args:
        client: A client with the node's identity.
        options: Its options.
    """

    def __init__(self, client: Client, options: CleanerOptions) -> None:
        self._client = client
        self._name = options.node
        self._containerd = Containerd(options.ctr, options.address)
        self._disk = Disk(options.kubelet, options.logs)
        self._baseline = BaselineFile(options.state)
        self._changed = asyncio.Event()
        only = {"fieldSelector": f"metadata.name={options.node}"}
        self._nodes = Informer(Node.resource, objects.decode_node, self._notice, selectors=only)
        # The numbers of things removed for the current request.
        self._removed: dict[str, int] = {}
        self._request = ""

    async def run(self) -> None:
        """Run until cancelled. Failures are logged and retried."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run(self._client))
            await self._nodes.synced.wait()
            while True:
                self._changed.clear()
                try:
                    again = await self._act()
                except (ApiError, RetryableError) as error:
                    log.warning("not done", extra={"problem": str(error)})
                    again = AGAIN_SECONDS / 4
                with suppress(TimeoutError):
                    async with asyncio.timeout(again):
                        await self._changed.wait()

    async def _act(self) -> float | None:
        """Act on the node's marks; return the seconds until the next attempt, None to wait until the marks change."""
        node = self._nodes.cache.get(self._name)
        if node is None:
            return None  # the kubelet has not registered it yet
        notes = node.metadata.annotations
        if notes.get(NODE_AGENT) != __version__:
            await self._note({NODE_AGENT: __version__})
        name = node.metadata.labels.get(SLICE_RESERVED, "")
        if not name:
            # A later slice of the same name must not use these images.
            self._baseline.drop()
            return None
        baseline = self._baseline.read()
        if baseline is None or baseline.slice != name:
            baseline = await self._look(name)
        request = notes.get(CLEANING, "")
        if slice_of_request(request) != name:
            return None
        before = objects.answer_of(node)
        # After a restart, the answer on the Node shows that the request is done.
        if before is not None and before.request == request and not before.left:
            return None
        answer = await self._clean(request, baseline)
        if answer != before:
            await self._note({CLEANED: msgspec.json.encode(answer).decode()})
        return AGAIN_SECONDS if answer.left else None

    async def _look(self, name: str) -> Baseline:
        """Record the present images, if no pod of the tenant can have pulled one yet."""
        # The node is read after its images: if the slice label is missing then, no pod of the tenant was bound before.
        images = leftovers.snapshot(await self._containerd.images())
        node = await self._client.get(Node, self._name)
        was_free = SLICE not in node.metadata.labels and not node.metadata.annotations.get(CLEANING)
        is_same = node.metadata.labels.get(SLICE_RESERVED) == name
        baseline = Baseline(slice=name, images=images if was_free and is_same else {})
        self._baseline.write(baseline)
        log.info("images noted", extra={"slice": name, "images": len(baseline.images), "in_time": was_free})
        return baseline

    async def _clean(self, request: str, baseline: Baseline) -> CleaningResult:
        """Remove what is left in several attempts, and return the answer."""
        if request != self._request:
            self._request, self._removed = request, {}
        left, problems = await self._attempt(baseline)
        for pause in FIRST_PAUSES:
            if not left:
                break
            await asyncio.sleep(pause)
            left, problems = await self._attempt(baseline)
        messages = leftovers.messages(left, problems, most=MOST_LEFT, longest=MAX_TEXT)
        log.info("cleaned", extra={"slice": baseline.slice, "removed": dict(self._removed), "left": len(messages)})
        return CleaningResult(request=request, removed=dict(self._removed), left=messages)

    async def _attempt(self, baseline: Baseline) -> tuple[Leftovers, Mapping[str, str]]:
        """Remove what is left once; return what stays, and why."""
        before = await self._find(baseline)
        problems: dict[str, str] = {}
        # Containers first: they keep mounts in the folders busy, and containerd keeps the images that they use.
        for container in before.containers:
            problem = await self._containerd.remove_container(container)
            problems |= {container.id: problem} if problem else {}
        for folder in before.folders:
            problem = await asyncio.to_thread(self._disk.remove, folder)
            problems |= {str(folder.path): problem} if problem else {}
        problems |= await self._containerd.remove_images(before.images)
        await asyncio.to_thread(self._disk.sweep)
        # The agent reports what a second search finds, not what the commands claim.
        after = await self._find(baseline) if before else before
        for what, number in leftovers.count(before, after).items():
            self._removed[what] = self._removed.get(what, 0) + number
        return after, problems

    async def _find(self, baseline: Baseline) -> Leftovers:
        folders = await asyncio.to_thread(self._disk.folders)
        containers = await self._containerd.containers()
        images = await self._containerd.images()
        # Last: a container that was listed belongs to a pod that is known by then.
        pods = await objects.pods_of(self._client, self._name)
        found = NodeContents(images=images, containers=containers, folders=folders)
        return leftovers.find(found, pods, baseline.slice, baseline.images)

    async def _note(self, annotations: Mapping[str, str]) -> None:
        await self._client.merge_patch(Node.resource, "", self._name, {"metadata": {"annotations": annotations}})

    def _notice(self, change: Change[Node]) -> None:
        # Kubelets write the Node's status every few seconds.
        before, after = change.before, change.after
        if before is None or after is None or objects.instructions(before) != objects.instructions(after):
            self._changed.set()


async def serve(connection: Connection, options: CleanerOptions) -> None:
    """Run the agent until SIGTERM or SIGINT.

    Raises:
        ConfigError: The credentials are wrong.
    """
    async with Client(connection, field_manager="tenantry-node-agent", max_connections=4) as client:
        await until_told_to_stop(NodeCleaner(client, options).run())
