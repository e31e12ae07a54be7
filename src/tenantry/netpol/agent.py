"""Keeps the table of one node in step with the cluster.

The rules come from all objects of the cluster, or from the view of the node that the operator writes (`sources`).

The agent lists all kinds before it compiles the first table. Until then, and after it has ended, the previous table
stays in force. If there is none, the agent loads one without pods first, which drops all traffic of pods except
connections from the node itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from pathlib import Path

import msgspec

from tenantry.api.errors import RetryableError
from tenantry.engine.agent import until_told_to_stop
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.netpol.nft import Nft
from tenantry.netpol.serviceapi import ServiceApi
from tenantry.netpol.sources import OwnView, RuleSource, WholeCluster
from tenantry.world.netpol.compile import TABLE, GuardedNode, closed
from tenantry.world.netpol.ruleset import Ruleset, difference, render

FIRST_RETRY_SECONDS = 0.2
LAST_RETRY_SECONDS = 10.0
LOOK_SECONDS = 10.0
"""The interval at which the agent checks that its table still exists."""

log = logging.getLogger(__name__)


class PolicyAgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the agent.

    Args:
        guarded: The node and the interfaces of its pods.
        netns: The node's network namespace; None for the agent's own.
        has_view: The operator writes a view for the node, and the credentials can read only that.
        services_port: The port on 127.0.0.1 at which kube-proxy reads the Services of the view; 0 for none.
        ready_file: Exists once the first table is loaded, except while a table cannot be loaded; None for no file.
    """

    guarded: GuardedNode
    netns: Path | None = None
    has_view: bool = False
    services_port: int = 0
    ready_file: Path | None = None


class PolicyAgent:
    """The agent of one node.

    Args:
        client: Reads pods, namespaces, nodes and NetworkPolicies of the whole cluster, or the view of the node.
        options: Its options.
    """

    def __init__(self, client: Client, options: PolicyAgentOptions) -> None:
        self._client = client
        self._options = options
        self._nft = Nft(options.netns)
        self._changed = asyncio.Event()
        self._services = ServiceApi() if options.services_port else None
        self._source: RuleSource = (
            OwnView(options.guarded, self._changed.set, self._services)
            if options.has_view
            else WholeCluster(options.guarded, self._changed.set)
        )
        self._in_force: Ruleset | None = None

    async def run(self) -> None:
        """Run until cancelled. Failures are retried, and reported in the log and by removing the ready file."""
        informers = self._source.informers
        try:
            # A file of an earlier run would promise rules that are not checked yet.
            self._set_ready(is_ready=False)
            await self._persist(self._close)
            async with asyncio.TaskGroup() as group, self._serving():
                for informer in informers:
                    group.create_task(informer.run(self._client))
                for informer in informers:
                    await informer.synced.wait()
                await self._source.wait()
                while True:
                    began = time.monotonic()
                    await self._persist(self._keep)
                    # Changes in this pause are compiled together: the agent compiles for at most half of the time.
                    await asyncio.sleep(time.monotonic() - began)
                    await self._wait()
        finally:
            # The rules stay, but new pods get no network without an agent.
            self._set_ready(is_ready=False)

    def _serving(self) -> AbstractAsyncContextManager[None]:
        """Return the context in which kube-proxy is served."""
        port = self._options.services_port
        return self._services.serve(port) if self._services is not None else nullcontext()

    async def _persist(self, act: Callable[[], Awaitable[None]]) -> None:
        delay = FIRST_RETRY_SECONDS
        while True:
            try:
                await act()
            except RetryableError as error:
                # After a time-out the kernel may have either table: only the whole table is certain.
                self._in_force = None
                self._set_ready(is_ready=False)
                log.warning("the rules are not in force", extra={"problem": str(error)})
                await asyncio.sleep(delay)
                delay = min(delay * 2, LAST_RETRY_SECONDS)
            else:
                return

    async def _close(self) -> None:
        """Keep the existing table, or drop all traffic of pods until they are known."""
        if not await self._nft.has(TABLE):
            await self._nft.load(closed(self._options.guarded))
        # nftables sees packets between pods of one bridge only if these settings are on.
        passing = [] if self._options.guarded.is_routed else await self._nft.unfiltered()
        if passing:
            raise RetryableError(f"packets between pods of one bridge are not filtered: set {', '.join(passing)} to 1")

    async def _keep(self) -> None:
        """Compile and load the table for the current pods and policies."""
        # Before the caches are read: a change that arrives meanwhile must start another round.
        self._changed.clear()
        began = time.monotonic()
        rules, counts = self._source.rules()
        compiled = time.monotonic()
        before = self._in_force
        commands = render(rules) if before is None else difference(before, rules)
        if commands:
            await self._load(commands, rules)
            fields = {
                **counts,
                "bytes": len(commands),
                "whole": before is None,
                "compile_milliseconds": round((compiled - began) * 1000, 1),
                "load_milliseconds": round((time.monotonic() - compiled) * 1000, 1),
            }
            log.info("rules in force", extra=fields)
        self._in_force = rules
        self._set_ready(is_ready=True)
        self._source.report()

    async def _load(self, commands: str, rules: Ruleset) -> None:
        try:
            await self._nft.load(commands)
        except RetryableError as error:
            if self._in_force is None:
                raise
            # Another program has changed the table, so the difference does not fit any more.
            log.warning("a change was refused: the whole table is written", extra={"problem": str(error)})
            await self._nft.load(render(rules))

    async def _wait(self) -> None:
        """Wait until an object has changed or the table is gone."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._changed.wait()
                    return
            # nftables reports no deletion to the agent; another tool's `flush ruleset` also deletes this table.
            await self._persist(self._look)
            if self._in_force is None:
                return

    async def _look(self) -> None:
        if self._in_force is not None and not await self._nft.has(TABLE):
            log.warning("another program has deleted the table")
            self._in_force = None

    def _set_ready(self, *, is_ready: bool) -> None:
        file = self._options.ready_file
        if file is not None and is_ready and not file.exists():
            file.touch()
        elif file is not None and not is_ready:
            file.unlink(missing_ok=True)


async def guard(connection: Connection, options: PolicyAgentOptions) -> None:
    """Run the agent until SIGTERM or SIGINT; the rules stay in force after it.

    Raises:
        ConfigError: The credentials are wrong.
    """
    async with Client(connection, field_manager="tenantry-netpol", max_connections=4) as client:
        await until_told_to_stop(PolicyAgent(client, options).run())
        log.info("stopped: the rules stay in force")
