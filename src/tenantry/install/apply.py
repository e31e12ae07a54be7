"""Puts manifests into a cluster by server-side apply, and waits until the kinds are served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from typing import Any, cast

import msgspec

from tenantry.api import marks
from tenantry.api.errors import ApiError, Forbidden, Invalid, NotFound, RetryableError
from tenantry.api.model import Resource
from tenantry.engine.crds import observe_crd
from tenantry.install import approval, canary
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.watch import WatchEvent, watch

Json = dict[str, Any]

ESTABLISHED_SECONDS = 45.0
FIRST_PAUSE_SECONDS = 0.05
LAST_PAUSE_SECONDS = 0.1

# The kinds that Tenantry installs: applying needs their paths, and asking the server costs a round trip for each.
_RESOURCES = {
    (resource.api_version, resource.kind): resource
    for resource in (
        Resource(
            "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
        ),
        Resource("", "v1", "namespaces", "Namespace", namespaced=False),
        Resource("", "v1", "serviceaccounts", "ServiceAccount"),
        Resource("", "v1", "services", "Service"),
        Resource("", "v1", "configmaps", "ConfigMap"),
        Resource("apps", "v1", "deployments", "Deployment"),
        Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
        Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False),
        Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
        Resource("rbac.authorization.k8s.io", "v1", "roles", "Role"),
        Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
        Resource("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", namespaced=False),
        Resource(
            *("flowcontrol.apiserver.k8s.io", "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration"),
            namespaced=False,
        ),
        *(
            Resource(
                "admissionregistration.k8s.io", "v1", f"{kind.lower()[:-1]}{end}", f"{kind}{rest}", namespaced=False
            )
            for kind in ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy")
            for end, rest in (("ies", ""), ("ybindings", "Binding"))
        ),
    )
}
CRDS = _RESOURCES["apiextensions.k8s.io/v1", "CustomResourceDefinition"]


def resource_of(value: Json) -> Resource:
    """Return where a manifest's object lives in the API."""
    return _RESOURCES[value["apiVersion"], value["kind"]]


async def apply(client: Client, objects: Sequence[Json], *, applied: Callable[[Json], None] = lambda _: None) -> None:
    """Apply manifests in order and wait until every CRD is served, and the policies that refuse are in force.

    Those that write may follow later; see `in_force`.

    Args:
        client: An administrator's.
        objects: As `manifests` makes them.
        applied: Told of each object as the server answers.

    Raises:
        ApiError: The server refuses one of them; those before it are applied.
        RetryableError: It takes too long.
    """
    await found(client, objects, applied=applied)
    await guard(client, objects, applied=applied)


async def found(client: Client, objects: Sequence[Json], *, applied: Callable[[Json], None] = lambda _: None) -> None:
    """Apply everything but the policies; every CRD is served then. See `apply`."""
    rest = [value for value in objects if not _is_policy(value)]
    definitions = [value for value in rest if value["kind"] == CRDS.kind]
    first = [value for value in rest if value["kind"] in {CRDS.kind, "Namespace"}]
    await _apply_all(client, first, applied)
    await asyncio.gather(*(_established(client, value["metadata"]["name"]) for value in definitions))
    await _apply_all(client, [value for value in rest if value not in first], applied)


async def guard(client: Client, objects: Sequence[Json], *, applied: Callable[[Json], None] = lambda _: None) -> None:
    """Apply the policies, and wait until the API server goes by them: until then it lets pass what they refuse.

    The kinds of their parameters must be served already: where they are not, policies stand still for seconds.
    See `apply`.
    """
    policies = [value for value in objects if _is_policy(value)]
    last = [value for value in policies if canary.is_canary(value)]
    await _apply_all(client, [value for value in policies if value not in last], applied)
    await _apply_all(client, last, applied)
    told = canary.told_by(objects)
    if told:
        await _refused(client, told)


async def _refused(client: Client, told: str) -> None:
    """Wait until the API server refuses what the canary is about, in these words."""
    url = wire.path(canary.PROBED, marks.SYSTEM_NAMESPACE)
    body = msgspec.json.encode(canary.probe())

    async def refuses() -> bool:
        try:
            await client.request("POST", url, query={"dryRun": "All"}, body=body)
        except (Forbidden, Invalid) as error:
            return told in str(error)
        return False

    await _until(
        refuses,
        f"the API server does not go by Tenantry's policies after {ESTABLISHED_SECONDS:.0f} s; see"
        " `kubectl get validatingadmissionpolicies` and run the command again",
    )


async def _until(is_so: Callable[[], Awaitable[bool]], problem: str) -> None:
    """Ask again and again, in growing pauses, until something is so; nothing tells when it has changed.

    Raises:
        RetryableError: It takes too long: `problem`.
    """
    delay = FIRST_PAUSE_SECONDS
    try:
        async with asyncio.timeout(ESTABLISHED_SECONDS):
            while not await is_so():
                await asyncio.sleep(delay)
                delay = min(2 * delay, LAST_PAUSE_SECONDS)
    except TimeoutError as error:
        raise RetryableError(problem) from error


async def in_force(client: Client) -> None:
    """Wait until nothing is refused any more because the API server does not know our kinds yet.

    Its policies that write look for new kinds every 5 s. Until then it refuses what they are about, and says so.

    Args:
        client: An administrator's.

    Raises:
        RetryableError: It takes too long.
    """

    async def probe(resource: Resource, value: Json) -> None:
        # Refused for another reason, it has come as far as it was meant to.
        with suppress(ApiError):
            await stamped(client, resource, value)

    await asyncio.gather(*(probe(resource, value) for resource, value in approval.probes()))


async def stamped(client: Client, resource: Resource, value: Json) -> None:
    """Wait until the API server writes into a request who makes it; it is only tried, not made.

    Args:
        client: Of whoever asks.
        resource: The request's kind.
        value: The request, but for its kind.

    Raises:
        RetryableError: It takes too long.
        ApiError: The request is refused for another reason.
    """
    url = wire.path(resource, value["metadata"].get("namespace", ""))
    body = msgspec.json.encode({"apiVersion": resource.api_version, "kind": resource.kind, **value})

    async def is_stamped() -> bool:
        try:
            answer = await client.request("POST", url, query={"dryRun": "All"}, body=body)
        except ApiError as error:
            if not approval.is_early(str(error)):
                raise
            return False
        return approval.is_stamped(msgspec.json.decode(answer))

    await _until(
        is_stamped,
        f"the API server does not write into {resource.full_name} who makes them after"
        f" {ESTABLISHED_SECONDS:.0f} s: its mutating policies are not in force yet; run the command again",
    )


def _is_policy(value: Json) -> bool:
    return str(value["apiVersion"]).startswith("admissionregistration.k8s.io/")


async def _apply_all(client: Client, values: Iterable[Json], applied: Callable[[Json], None]) -> None:
    await asyncio.gather(*(_apply_one(client, value, applied) for value in values))


async def _apply_one(client: Client, value: Json, applied: Callable[[Json], None]) -> None:
    resource = resource_of(value)
    meta = value["metadata"]
    answer = await client.apply(resource, meta.get("namespace", ""), meta["name"], value)
    applied(msgspec.json.decode(answer))


async def _established(client: Client, name: str) -> None:
    """Wait until the API server answers for a custom kind."""
    only = {"fieldSelector": f"metadata.name={name}"}
    try:
        async with asyncio.timeout(ESTABLISHED_SECONDS):
            version = ""
            async for page in client.pages(CRDS, msgspec.Raw, selectors=only):
                version = page.metadata.resource_version
                if any(observe_crd(raw).established for raw in page.items):
                    return
            changes = cast(
                "AsyncGenerator[list[WatchEvent]]", watch(client, CRDS, resource_version=version, selectors=only)
            )
            # A generator that is merely left keeps its connection open.
            async with aclosing(changes):
                async for events in changes:
                    if any(event.type == "MODIFIED" and observe_crd(event.object).established for event in events):
                        return
    except TimeoutError as error:
        raise RetryableError(
            f"the API server does not serve {name!r} after {ESTABLISHED_SECONDS:.0f} s; see"
            f" `kubectl describe crd {name}` and run the command again"
        ) from error
    raise NotFound(f"the watch of {name!r} ended before it was served; run the command again")
