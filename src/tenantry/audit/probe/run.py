"""Runs the pods of an audit, reads what they report, and deletes them, also after an error or Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Sequence

from tenantry.api.errors import ApiError, Forbidden, Invalid, NotFound
from tenantry.api.kubernetes import Namespace, NetworkPolicy
from tenantry.api.model import Json, Resource
from tenantry.audit import kinds
from tenantry.audit.context import AuditContext, AuditNode
from tenantry.audit.probe import objects, volumes
from tenantry.audit.probe.findings import (
    OWN,
    OWN_NAME,
    MemoryTest,
    ProbeFailure,
    ProbeFindings,
    ProbeReport,
    ProbeRun,
    nothing,
)
from tenantry.audit.probe.objects import ProbeAttempt, ProbeImage, ServerAddress
from tenantry.audit.verdict import NO_NODES
from tenantry.engine.tasks import all_of, first_error
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.podruns import NotReady, Pods, create, create_least_restricted, create_pod, end, why
from tenantry.policy.request import part, parts

READY_SECONDS = 120.0
"""How long pods may take until they answer; nodes may have to pull an image."""

DONE_SECONDS = 150.0
"""How long pods may take for their attempts."""

CLEANING_SECONDS = 30.0
LEFT_SECONDS = 900
"""Older objects were left by an audit that was killed."""

PEER, PROBER, EATER, WITNESS = "peer", "prober", "eater", "witness"
OPEN, CLOSED = "open", "closed"


async def probe(admin: Client, person: Client, context: AuditContext, image: ProbeImage | str) -> ProbeFindings:
    """Run pods as the tenant and beside it, and return what they found out.

    The probe deletes everything that it creates, also when it is cancelled. If this process is killed, the pods end by
    themselves after `objects.SECONDS`, and the next audit deletes what is left.

    Args:
        admin: The administrator's client, which creates and deletes the probe's own namespace.
        person: The tenant's client, which creates the pods in the audited namespace.
        context: The namespace and its surroundings.
        image: The image that pods run; or why there is none.
    """
    if not any(node.is_open for node in context.real_nodes):
        return nothing(NO_NODES)
    if isinstance(image, str):
        return nothing(image)
    running = _Probe(admin, person, context, image)
    try:
        return await running.run()
    except Forbidden as error:
        return nothing(f"the administrator may not set the probe up: {error}")
    except (ApiError, NotReady) as error:
        return nothing(f"the probe could not be set up: {error}")
    finally:
        with contextlib.suppress(ApiError, TimeoutError):
            async with asyncio.timeout(CLEANING_SECONDS):
                await running.clean_up()


class _Probe:
    """The pods of one audit, from their creation to their deletion."""

    def __init__(self, admin: Client, person: Client, context: AuditContext, image: ProbeImage) -> None:
        self._admin = admin
        self._person = person
        self._context = context
        self._image = image
        self._pods = Pods(admin, (node.name for node in context.real_nodes))
        self._own = context.namespace
        self._foreign = self._word = context.name
        self._nodes = [each for each in context.real_nodes if each.is_open]

    async def run(self) -> ProbeFindings:
        await self._delete_leftovers()
        await create(self._admin, Namespace.resource, objects.namespace(self._context))
        await create(self._admin, NetworkPolicy.resource, objects.closing(), self._foreign)
        with first_error():
            async with asyncio.TaskGroup() as group:
                limits = group.create_task(self._pid_limits())
                volume = group.create_task(volumes.probe(self._admin, self._person, self._context, self._image))
                opened = group.create_task(self._open_server())
                closed = group.create_task(self._closed_servers())
                # The tenant's own rules may refuse its pods; the administrator's servers start meanwhile.
                peer = await self._peer()
                servers = [await opened, *await closed, *([peer] if isinstance(peer, ServerAddress) else [])]
                attempts = objects.attempts(self._context, servers, self._word)
                witness = group.create_task(self._run_witness(attempts))
                if isinstance(peer, ProbeFailure):
                    own_run, memory = peer, peer
                else:
                    eater = group.create_task(self._exceed_memory())
                    own_run, memory = await self._run_own(attempts), await eater
        return ProbeFindings(
            own=own_run,
            other=witness.result(),
            told={each.id: each.told for each in attempts},
            memory=memory,
            volume=volume.result(),
            pid_limits=limits.result(),
        )

    # -- servers ----------------------------------------------------------------------------------

    async def _open_server(self) -> ServerAddress:
        service = await create(self._admin, kinds.SERVICES, objects.service(OPEN, OPEN), self._foreign)
        return await self._foreign_server(OPEN, OPEN, self._nodes, service)

    async def _closed_servers(self) -> list[ServerAddress]:
        """Create closed pods on several nodes; a node that does not run its pod is left out if another does.

        Raises:
            NotReady: No node runs its pod.
        """
        service = await create(self._admin, kinds.SERVICES, objects.service(CLOSED, CLOSED), self._foreign)

        async def one(number: int, node: AuditNode) -> ServerAddress | NotReady:
            try:
                return await self._foreign_server(f"{CLOSED}-{number}", CLOSED, [node], service)
            except NotReady as error:
                return error

        nodes = self._nodes[: objects.MAX_NODES]
        found = await all_of(one(*each) for each in enumerate(nodes))
        ready = [each for each in found if isinstance(each, ServerAddress)]
        if not ready:
            raise NotReady("; ".join(sorted(str(each) for each in found)))
        return ready

    async def _foreign_server(self, name: str, role: str, nodes: Sequence[AuditNode], service: Json) -> ServerAddress:
        await create_pod(self._admin, self._foreign_pod(name, role, nodes), self._foreign)
        return await self._address(role, name, self._foreign, service)

    async def _peer(self) -> ServerAddress | ProbeFailure:
        name = self._named(PEER)
        value = objects.pod(name, PEER, self._image, objects.serving(self._word))
        try:
            await create_pod(self._person, value, self._own)
            service = await create(self._person, kinds.SERVICES, objects.service(name, PEER), self._own)
            return await self._address(PEER, name, self._own, service)
        except (Forbidden, Invalid) as error:
            return ProbeFailure(f"a legitimate pod of the probe is refused: {error}")
        except (ApiError, NotReady) as error:
            return ProbeFailure(str(error))

    async def _address(self, role: str, name: str, namespace: str, service: Json) -> ServerAddress:
        pod = await self._pods.until(name, namespace, _is_running, READY_SECONDS)
        return ServerAddress(
            name=role,
            pod=str(part(pod, "status")["podIP"]),
            node=str(part(pod, "spec")["nodeName"]),
            service=str(part(service, "spec")["clusterIP"]),
            dns=f"{part(service, 'metadata')['name']}.{namespace}.svc.{objects.CLUSTER_DOMAIN}",
        )

    # -- attempts ---------------------------------------------------------------------------------

    async def _run_own(self, attempts: Sequence[ProbeAttempt]) -> ProbeRun | ProbeFailure:
        name = self._named(PROBER)
        arguments = objects.trying(attempts, (*OWN, OWN_NAME))

        def prober(bare: bool) -> Json:  # noqa: FBT001 - called by one function
            return objects.pod(name, PROBER, self._image, arguments, bare=bare)

        try:
            # The least restricted pod that the rules admit shows what a tenant's container can do at most.
            is_bare = await create_least_restricted(self._person, prober, self._own)
            return await self._report(name, self._own, is_bare=is_bare)
        except (ApiError, NotReady) as error:
            return ProbeFailure(str(error))

    async def _run_witness(self, attempts: Sequence[ProbeAttempt]) -> ProbeRun | ProbeFailure:
        # No policy restricts the witness: if an attempt works for it, the tenant's failure is a refusal.
        arguments = objects.trying(attempts, (OPEN, CLOSED, "node", "api"))
        try:
            await create_pod(self._admin, self._foreign_pod(WITNESS, WITNESS, self._nodes, arguments), self._foreign)
            return await self._report(WITNESS, self._foreign, is_bare=True)
        except (ApiError, NotReady) as error:
            return ProbeFailure(str(error))

    def _foreign_pod(self, name: str, role: str, nodes: Sequence[AuditNode], arguments: tuple[str, ...] = ()) -> Json:
        value = objects.pod(name, role, self._image, arguments or objects.serving(self._word), bare=True)
        return objects.on_nodes(value, nodes)

    async def _report(self, name: str, namespace: str, *, is_bare: bool) -> ProbeRun:
        pod, report = await self._pods.report(name, namespace, ProbeReport, DONE_SECONDS)
        return ProbeRun(report=report, node=str(part(pod, "spec").get("nodeName", "")), is_bare=is_bare)

    async def _exceed_memory(self) -> MemoryTest | ProbeFailure:
        name = self._named(EATER)
        told = f"allocate {objects.EXCESS_MIB} MiB of memory with a limit of {objects.LIMIT_MIB} MiB"
        try:
            value = objects.pod(name, EATER, self._image, ("eat", str(objects.EXCESS_MIB)))
            await create_pod(self._person, value, self._own)
            ended, log = await self._pods.ended(name, self._own, DONE_SECONDS)
        except (ApiError, NotReady) as error:
            return ProbeFailure(str(error))
        if '"wants"' not in log:
            return ProbeFailure(f"the pod {name!r} did not begin: {why(ended)}")
        survived = '"ate"' in log
        return MemoryTest(told=told, survived=survived, end="it got all of it" if survived else end(ended))

    async def _pid_limits(self) -> dict[str, int] | ProbeFailure:
        found: dict[str, int] = {}
        for node in self._context.real_nodes[: objects.MAX_NODES]:
            try:
                data = await self._admin.request("GET", f"/api/v1/nodes/{node.name}/proxy/configz")
            except ApiError as error:
                return ProbeFailure(f"the kubelet of {node.name!r} does not show its configuration: {error}")
            config = part(self._admin.decode(Json, data), "kubeletconfig")
            found[node.name] = int(config.get("podPidsLimit", -1))
        return found

    def _named(self, role: str) -> str:
        return f"{self._context.name}-{role}"

    # -- cleaning up ------------------------------------------------------------------------------

    async def clean_up(self) -> None:
        """Delete everything that was created."""
        pods = (PEER, PROBER, EATER, volumes.READER)
        wanted = [(Namespace.resource, "", self._foreign)]
        wanted += [(kinds.PODS, self._own, self._named(role)) for role in pods]
        wanted.append((kinds.SERVICES, self._own, self._named(PEER)))
        wanted.append((kinds.CLAIMS, self._own, self._named(volumes.READER)))

        async def attempt(resource: Resource, namespace: str, name: str) -> ApiError | None:
            # One error must not cancel the other deletions.
            try:
                await self._delete(resource, namespace, name)
            except ApiError as error:
                return error
            return None

        for error in await all_of(attempt(*each) for each in wanted):
            if error is not None:
                raise error

    async def _delete(self, resource: Resource, namespace: str, name: str) -> None:
        with contextlib.suppress(NotFound):
            await self._admin.delete(resource, namespace, name)

    async def _delete_leftovers(self) -> None:
        """Delete what killed audits have left; the objects of an audit under way are younger."""
        selectors = {"labelSelector": ",".join(f"{key}={value}" for key, value in objects.MARK.items())}
        before = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=LEFT_SECONDS)
        for resource, namespace in (
            (Namespace.resource, ""),
            *((each, self._own) for each in (kinds.PODS, kinds.SERVICES, kinds.CLAIMS)),
        ):
            data = await self._admin.request("GET", wire.path(resource, namespace), query=selectors)
            for each in parts(self._admin.decode(Json, data), "items"):
                about = part(each, "metadata")
                made = dt.datetime.fromisoformat(str(about["creationTimestamp"]))
                if made < before and str(about["name"]).startswith("audit-"):
                    await self._delete(resource, namespace, str(about["name"]))


def _is_running(pod: Json) -> bool:
    status = part(pod, "status")
    return status.get("phase") == "Running" and bool(status.get("podIP"))
