"""Runs the pods of an audit, hears what they have seen, and takes them away, however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from typing import Any

import msgspec

from tenantry.api.errors import ApiError, Forbidden, Invalid, NotFound
from tenantry.api.kubernetes import Namespace, NetworkPolicy
from tenantry.api.model import Resource
from tenantry.audit import kinds, stage, volumes
from tenantry.audit.attempts import Json, rows, table
from tenantry.audit.findings import OWN, OWN_NAME, Eaten, Findings, Missed, Report, Run, nothing
from tenantry.audit.place import Node, Place
from tenantry.audit.podrunner import NotReady, Pods, create, create_pod, end, has_ended, why
from tenantry.audit.stage import Address, Image
from tenantry.audit.verdict import NO_NODES
from tenantry.audit.volumes import READER
from tenantry.kube import wire
from tenantry.kube.client import Client

READY_SECONDS = 120.0
"""How long pods may take until they answer: an image may have to come."""

DONE_SECONDS = 150.0
"""How long they may take for their attempts."""

CLEANING_SECONDS = 30.0
LEFT_SECONDS = 900
"""What is older was left by an audit that died."""
PEER = "peer"
OPEN, CLOSED = "open", "closed"


async def probe(admin: Client, person: Client, place: Place, image: Image | str) -> Findings:
    """Run pods as the tenant and beside it, and return what they have seen.

    Everything that is made ends with this, also when it is cancelled. Should this process die, the pods end by
    themselves (`stage.SECONDS`), and the next audit takes away what is left.

    Args:
        admin: Of whoever asked; makes and takes away the namespace of nobody's.
        person: The tenant's; makes the pods in the namespace that is audited.
        place: Where.
        image: What the pods run; or why there is nothing that they could run.
    """
    if not any(node.is_open for node in place.real_nodes):
        return nothing(NO_NODES)
    if isinstance(image, str):
        return nothing(image)
    made = _Stage(admin, person, place, image)
    try:
        return await made.play()
    except Forbidden as error:
        return nothing(f"whoever asked may not set the probes up: {error}")
    except (ApiError, NotReady) as error:
        return nothing(f"the probes could not be set up: {error}")
    finally:
        cleaning = asyncio.ensure_future(made.clean())
        with contextlib.suppress(ApiError, TimeoutError):
            async with asyncio.timeout(CLEANING_SECONDS):
                await asyncio.shield(cleaning)


class _Stage:
    """The pods of one audit, from their making to their end."""

    def __init__(self, admin: Client, person: Client, place: Place, image: Image) -> None:
        self._admin = admin
        self._person = person
        self._place = place
        self._image = image
        self._pods = Pods(admin, (node.name for node in place.real_nodes))
        self._word = place.name
        self._foreign = place.name
        self._nodes = [each for each in place.real_nodes if each.is_open]

    # -- the play ---------------------------------------------------------------------------------

    async def play(self) -> Findings:
        await self._sweep()
        await create(self._admin, Namespace.resource, stage.namespace(self._place))
        await create(self._admin, NetworkPolicy.resource, stage.closing(), self._foreign)
        limits = asyncio.create_task(self._pid_limits())
        volume = asyncio.create_task(volumes.probe(self._admin, self._person, self._place, self._image))
        opened = asyncio.create_task(self._server(OPEN))
        closed = asyncio.create_task(self._closed())
        own = asyncio.create_task(self._peer())
        try:
            found = [await opened, *await closed]
            peer = await own
            if isinstance(peer, Address):
                found.append(peer)
            attempts = stage.attempts(self._place, found, self._word)
            told = {each.id: each.told for each in attempts}
            mine = self._run_own(attempts) if isinstance(peer, Address) else _missed(peer)
            theirs = self._run_witness(attempts)
            eaten = self._eat() if isinstance(peer, Address) else _missed(peer)
            own_run, other_run, eater = await asyncio.gather(mine, theirs, eaten)
            return Findings(
                own=own_run,
                other=other_run,
                told=told,
                eaten=eater,
                volume=await volume,
                pid_limits=await limits,
            )
        finally:
            tasks: list[asyncio.Task[Any]] = [opened, closed, own, limits, volume]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _server(self, role: str) -> Address:
        value = stage.pod(role, role, self._image, stage.serving(self._word), bare=True)
        service = await create(self._admin, kinds.SERVICES, stage.service(role, role), self._foreign)
        await create_pod(self._admin, stage.on_real(value, self._nodes), self._foreign)
        return await self._address(role, role, self._foreign, service)

    async def _closed(self) -> list[Address]:
        """Make closed pods on several nodes; a node that does not run its pod is left out, while there is another.

        Raises:
            NotReady: None runs.
        """
        service = await create(self._admin, kinds.SERVICES, stage.service(CLOSED, CLOSED), self._foreign)

        async def one(number: int, node: Node) -> Address:
            name = f"{CLOSED}-{number}"
            value = stage.pod(name, CLOSED, self._image, stage.serving(self._word), bare=True)
            await create_pod(self._admin, stage.on_real(value, [node]), self._foreign)
            about = await self._address(CLOSED, name, self._foreign, service)
            return msgspec.structs.replace(about, dns=self._dns(CLOSED, self._foreign))

        nodes = self._nodes[: stage.MOST_NODES]
        found = await asyncio.gather(*(one(*each) for each in enumerate(nodes)), return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException) and not isinstance(each, NotReady):
                raise each
        ready = [each for each in found if isinstance(each, Address)]
        if not ready:
            raise NotReady("; ".join(sorted(str(each) for each in found)))
        return ready

    async def _peer(self) -> Address | Missed:
        name = self._named(PEER)
        value = stage.pod(name, PEER, self._image, stage.serving(self._word))
        try:
            await create_pod(self._person, value, self._place.namespace)
            service = await create(self._person, kinds.SERVICES, stage.service(name, PEER), self._place.namespace)
            return await self._address(PEER, name, self._place.namespace, service)
        except (Forbidden, Invalid) as error:
            return Missed(f"an honest pod of the probe is refused: {error}")
        except (ApiError, NotReady) as error:
            return Missed(str(error))

    async def _run_own(self, attempts: list[stage.Attempt]) -> Run | Missed:
        name, namespace = self._named("prober"), self._place.namespace
        arguments = stage.trying(attempts, (*OWN, OWN_NAME))
        is_bare = True
        try:
            try:
                value = stage.pod(name, "prober", self._image, arguments, bare=True)
                await create_pod(self._person, value, namespace)
            except (Forbidden, Invalid):
                is_bare = False
                await create_pod(self._person, stage.pod(name, "prober", self._image, arguments), namespace)
            return await self._report(name, namespace, is_bare=is_bare)
        except (ApiError, NotReady) as error:
            return Missed(str(error))

    async def _run_witness(self, attempts: list[stage.Attempt]) -> Run | Missed:
        # What it may do without policies tells whether the tenant's failures are refusals.
        controls = (OPEN, CLOSED, "node", "api")
        value = stage.pod("witness", "witness", self._image, stage.trying(attempts, controls), bare=True)
        try:
            await create_pod(self._admin, stage.on_real(value, self._nodes), self._foreign)
            return await self._report("witness", self._foreign, is_bare=True)
        except (ApiError, NotReady) as error:
            return Missed(str(error))

    async def _eat(self) -> Eaten | Missed:
        name, namespace = self._named("eater"), self._place.namespace
        told = f"take {stage.EATEN_MIB} MiB of memory where the limit is {stage.LIMIT_MIB} MiB"
        try:
            value = stage.pod(name, "eater", self._image, ("eat", str(stage.EATEN_MIB)))
            await create_pod(self._person, value, namespace)
            ended = await self._pods.until(name, namespace, has_ended, DONE_SECONDS)
            words = await self._pods.log(name, namespace)
        except (ApiError, NotReady) as error:
            return Missed(str(error))
        if '"wants"' not in words:
            return Missed(f"the pod {name!r} did not begin: {why(ended)}")
        survived = '"ate"' in words
        return Eaten(told=told, survived=survived, end="it has all of it" if survived else end(ended))

    async def _report(self, name: str, namespace: str, *, is_bare: bool) -> Run:
        ended = await self._pods.until(name, namespace, has_ended, DONE_SECONDS)
        words = await self._pods.log(name, namespace)
        try:
            report = msgspec.json.decode(words, type=Report)
        except msgspec.MsgspecError as error:
            raise NotReady(f"the pod {name!r} in {namespace!r} tells nothing: {why(ended)}") from error
        return Run(report=report, node=str(table(ended, "spec").get("nodeName", "")), is_bare=is_bare)

    async def _pid_limits(self) -> dict[str, int] | Missed:
        found: dict[str, int] = {}
        for node in self._place.real_nodes[: stage.MOST_NODES]:
            try:
                data = await self._admin.request("GET", f"/api/v1/nodes/{node.name}/proxy/configz")
            except ApiError as error:
                return Missed(f"the kubelet of {node.name!r} does not tell its configuration: {error}")
            told = table(msgspec.json.decode(data, type=dict[str, Any]), "kubeletconfig")
            found[node.name] = int(told.get("podPidsLimit", -1))
        return found

    # -- what is asked often ----------------------------------------------------------------------------------

    def _named(self, role: str) -> str:
        return f"{self._place.name}-{role}"

    async def _address(self, role: str, name: str, namespace: str, service: Json) -> Address:
        pod = await self._pods.until(name, namespace, _is_running, READY_SECONDS)
        return Address(
            name=role,
            pod=str(table(pod, "status")["podIP"]),
            node=str(table(pod, "spec")["nodeName"]),
            service=str(table(service, "spec")["clusterIP"]),
            dns=self._dns(name, namespace),
        )

    @staticmethod
    def _dns(service: str, namespace: str) -> str:
        return f"{service}.{namespace}.svc.{stage.CLUSTER_DOMAIN}"

    # -- the end ----------------------------------------------------------------------------------

    async def clean(self) -> None:
        """Take everything away that was made."""
        wanted = [(Namespace.resource, "", self._foreign)]
        wanted += [(kinds.PODS, self._place.namespace, self._named(role)) for role in (PEER, "prober", "eater", READER)]
        wanted.append((kinds.SERVICES, self._place.namespace, self._named(PEER)))
        wanted.append((kinds.CLAIMS, self._place.namespace, self._named(READER)))
        gone = await asyncio.gather(*(self._delete(*each) for each in wanted), return_exceptions=True)
        for each in gone:
            if isinstance(each, BaseException):
                raise each

    async def _delete(self, resource: Resource, namespace: str, name: str) -> None:
        with contextlib.suppress(NotFound):
            await self._admin.delete(resource, namespace, name)

    async def _sweep(self) -> None:
        """Take away what audits that died have left; others may be under way, and are younger."""
        selectors = {"labelSelector": ",".join(f"{key}={value}" for key, value in stage.MARK.items())}
        before = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=LEFT_SECONDS)
        for resource, namespace in (
            (Namespace.resource, ""),
            (kinds.PODS, self._place.namespace),
            (kinds.SERVICES, self._place.namespace),
            (kinds.CLAIMS, self._place.namespace),
        ):
            data = await self._admin.request("GET", wire.path(resource, namespace), query=selectors)
            for each in rows(msgspec.json.decode(data, type=dict[str, Any]), "items"):
                about = table(each, "metadata")
                made = dt.datetime.fromisoformat(str(about["creationTimestamp"]))
                if made < before and str(about["name"]).startswith("audit-"):
                    await self._delete(resource, namespace, str(about["name"]))


async def _missed(value: Missed) -> Missed:
    return value


def _is_running(pod: Json) -> bool:
    status = table(pod, "status")
    return status.get("phase") == "Running" and bool(status.get("podIP"))
