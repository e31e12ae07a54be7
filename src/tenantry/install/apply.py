"""Applies manifests by server-side apply, and waits until kinds are served and policies in force."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from typing import cast

import msgspec

from tenantry import __version__
from tenantry.api import marks
from tenantry.api.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    InputError,
    Invalid,
    NotFound,
    RetryableError,
)
from tenantry.api.kubernetes import ClusterRoleBinding, Namespace, Subject
from tenantry.api.marks import SYSTEM_NAMESPACE, ZONE
from tenantry.api.model import Json, ObjectMeta, Resource
from tenantry.api.policyparameters import PolicyParameters, texts_of
from tenantry.api.tenant import Tenant
from tenantry.controllers.installation.comparison import differing, exact, stored
from tenantry.controllers.webhook.controller import CONFIGURATIONS
from tenantry.controllers.webhook.mutations import CONFIGURATION, ROLE
from tenantry.engine.crds import observe_crd
from tenantry.engine.lease import Lease
from tenantry.engine.tasks import all_of
from tenantry.install import approval, canary, clusterinventory, fallback
from tenantry.install.repairs import REPAIRS
from tenantry.install.rights import OPERATOR
from tenantry.install.upgrade import (
    BELOW,
    COPIES,
    REGISTER,
    RETIRED,
    SELECTED,
    CopiedWorkload,
    ParameterMap,
    check,
    converted,
    require_not_newer,
    rezoned,
)
from tenantry.install.waves import CRDS, FLOW_SCHEMAS, Wave, founding, guarding, policy_resource, resource_of
from tenantry.kube import wire
from tenantry.kube.client import ATTEMPTS, Client
from tenantry.kube.watch import WatchEvent, watch
from tenantry.world import inheritance


class _Labelled(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)

ESTABLISHED_SECONDS = 45.0
REGISTER_SECONDS = 2
"""How long an operator may take to correct the register of hosts."""

FIRST_PAUSE_SECONDS = 0.05
LAST_PAUSE_SECONDS = 0.1


async def apply(client: Client, objects: Sequence[Json], *, applied: Callable[[Json], None] = lambda _: None) -> None:
    """Apply manifests in order and wait until every CRD is served and the validating policies are in force.

    Mutating policies may follow later; see `in_force`.

    Args:
        client: An administrator's.
        objects: As `manifests` makes them.
        applied: Called with each object as the server answers.

    Raises:
        ApiError: The server refuses one of them; those before it are applied.
        InputError: The rules of a namespace are too long for this version; nothing has changed.
        RetryableError: It takes too long.
    """
    await found(client, objects, applied=applied)
    await guard(client, objects, applied=applied)


async def found(client: Client, objects: Sequence[Json], *, applied: Callable[[Json], None] = lambda _: None) -> None:
    """Apply everything but the policies. See `apply`.

    Raises:
        ConfigError: The cluster has a newer version of Tenantry; nothing has changed.
        InputError: The rules of a namespace are too long for this version; nothing has changed.
    """
    # Before the first write: with these CRDs and roles, the older operator could not shorten the rules any more.
    if _is_whole(objects):
        await require_upgradable(client)
    await _carry_out(client, founding(objects), applied)
    if _is_whole(objects):
        await _provide(client, clusterinventory.definitions(), applied)


async def require_upgradable(client: Client) -> str:
    """Check that this version can follow what is installed, and return the installed version; "" for none.

    Raises:
        ConfigError: The cluster has a newer version of Tenantry.
        InputError: The rules of a namespace are too long for this version, or an operator would undo the upgrade.
    """
    installed = await require_known(client)
    check(await client.list(ParameterMap, selectors=SELECTED))
    await _check_register(client)
    return installed


async def require_known(client: Client) -> str:
    """Check that this version knows all that is installed, and return the installed version; "" for none.

    Raises:
        ConfigError: The cluster has a newer version of Tenantry.
    """
    try:
        data = await client.request("GET", wire.path(CRDS, "", Tenant.resource.full_name))
    except NotFound:
        return ""
    found = msgspec.json.decode(data, type=_Labelled)
    installed = found.metadata.labels.get(marks.INSTALLED_VERSION, "")
    require_not_newer(installed, __version__)
    return installed


async def guard(client: Client, objects: Sequence[Json], *, applied: Callable[[Json], None] = lambda _: None) -> None:
    """Apply the policies, and wait until the API server enforces them. See `apply`.

    Parameters of an older version are copied before, and deleted after, so that the rules are in force at each moment.
    Its policies that this version does not have are deleted last.

    Raises:
        InputError: The rules of a namespace have become too long for this version since `found`; no policy has changed.
    """
    waves = guarding(objects)
    is_whole = _is_whole(objects)
    maps = await client.list(ParameterMap, selectors=SELECTED) if is_whole else []
    if is_whole:
        await _copy_parameters(client, maps)
        await _correct_register(client)
    await _carry_out(client, waves, applied)
    await all_of(_delete(client, each.resource, each.metadata.namespace, each.metadata.name) for each in maps)
    if is_whole:
        await _retire(client)
    if is_whole and any(fallback.is_mutating(each) for each in objects):
        # The policies do now what the webhook did. Pods of the older installation still run.
        await _end_binding(client, ROLE, CONFIGURATIONS, CONFIGURATION)
        for each in fallback.leftovers():
            await _delete(client, resource_of(each), each["metadata"].get("namespace", ""), each["metadata"]["name"])


async def _outdated(client: Client) -> list[PolicyParameters]:
    """Return the parts of the register of hosts that a version between two releases wrote, as they should be."""
    parts = await client.list(PolicyParameters, namespace=SYSTEM_NAMESPACE, selectors=REGISTER)
    return rezoned(parts, await client.list(Namespace, selectors=BELOW)) if parts else []


async def _correct_register(client: Client) -> None:
    """Write those parts as they should be; one that a running operator changes meanwhile is read again.

    Raises:
        Conflict: A part changes all the time.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            for part in await _outdated(client):
                version = part.metadata.resource_version
                patch = {"metadata": {"resourceVersion": version, "annotations": part.metadata.annotations}}
                await client.merge_patch(part.resource, SYSTEM_NAMESPACE, part.metadata.name, patch)
        except Conflict:
            if attempt == ATTEMPTS:
                raise
        else:
            return


async def _check_register(client: Client) -> None:
    """Check that no operator of that version runs: it would undo the change of the register.

    Raises:
        InputError: It runs.
    """
    if not await _outdated(client):
        return
    try:
        lease = await client.get(Lease, OPERATOR, SYSTEM_NAMESPACE)
    except NotFound:
        return
    spec = lease.spec
    if not spec.holder_identity or spec.renew_time is None:
        return
    age = dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(spec.renew_time)
    # An operator of this version corrects the register itself, a moment after a namespace moves.
    if age.total_seconds() < (spec.lease_duration_seconds or 0) and await _stays_outdated(client):
        raise InputError(
            "the register of hosts has hosts of Subtenants under their tenant, as versions between two releases wrote"
            " them, and their operator runs: stop it (`kubectl -n tenantry-system scale deployment tenantry-operator"
            " --replicas=0`), and install again"
        )


async def _stays_outdated(client: Client) -> bool:
    for _ in range(REGISTER_SECONDS):
        await asyncio.sleep(1)
        if not await _outdated(client):
            return False
    return True


def _is_whole(objects: Sequence[Json]) -> bool:
    """Return whether manifests are an upgrade.

    A part of the policies is none: the others may still read the older version's parameters.
    """
    return any(wave.refused for wave in guarding(objects))


async def _retire(client: Client) -> None:
    """Delete the policies of older versions, once those that refuse the same are in force."""
    for each in retired():
        await _delete(client, resource_of(each), "", each["metadata"]["name"])


def retired() -> Iterator[Json]:
    """Yield the names of policies and bindings of older versions, as manifests, in the order of their deletion."""
    for kind, names in RETIRED.items():
        # Bindings first: a policy without a binding is not in force, and a binding without a policy is an error.
        for resource in (policy_resource(kind, "Binding"), policy_resource(kind)):
            for name in names:
                yield {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}


async def _copy_parameters(client: Client, maps: Sequence[ParameterMap]) -> None:
    """Create the parameters that an older version kept in other kinds, unless the operator has written them."""
    copies: dict[Resource, list[CopiedWorkload]] = {}
    for kind in inheritance.SCALED:
        copies[kind] = [each async for each in client.items(kind, CopiedWorkload, selectors=COPIES)]
    zoned = await client.list(Namespace, selectors={"labelSelector": ZONE}) if maps else []
    wanted = converted(maps, copies, {each.metadata.name: each.metadata.labels[ZONE] for each in zoned})
    if not wanted:
        return
    there = {each.key: each for each in await client.list(PolicyParameters, selectors=SELECTED)}

    async def copy(value: PolicyParameters) -> None:
        found = there.get(value.key)
        if found is None:
            with suppress(AlreadyExists):  # the operator has just started
                await client.create(value)
        # The manifests themselves have some without texts, which the operator writes.
        elif not texts_of(found.metadata.annotations):
            meta, version = value.metadata, found.metadata.resource_version
            patch = {"metadata": {"annotations": meta.annotations, "resourceVersion": version}}
            with suppress(Conflict):
                await client.merge_patch(value.resource, meta.namespace, meta.name, patch)

    await all_of(copy(value) for value in wanted)


async def _provide(client: Client, definitions: Sequence[Json], applied: Callable[[Json], None]) -> None:
    """Create CRDs of other projects that the cluster does not have; one that is there stays as it is."""

    async def one(value: Json) -> None:
        with suppress(AlreadyExists):
            answer = await client.request("POST", wire.path(CRDS), body=msgspec.json.encode(value))
            applied(msgspec.json.decode(answer))

    await all_of(one(value) for value in definitions)


async def _delete(client: Client, resource: Resource, namespace: str, name: str) -> None:
    with suppress(NotFound):
        await client.delete(resource, namespace, name)


async def _carry_out(client: Client, waves: Sequence[Wave], applied: Callable[[Json], None]) -> None:
    async def one(value: Json) -> None:
        meta = value["metadata"]
        answer = await client.apply(resource_of(value), meta.get("namespace", ""), meta["name"], value)
        applied(await _cleaned(client, value, msgspec.json.decode(answer)))

    for wave in waves:
        await all_of(one(value) for value in wave.objects)
        await all_of(_established(client, name) for name in wave.served)
        if wave.refused:
            await _refused(client, wave.refused)


async def _cleaned(client: Client, value: Json, live: Json) -> Json:
    """Remove what an apply keeps because another client added it, as a condition that turns a policy off."""
    resource, meta = resource_of(value), value["metadata"]
    if marks.INSTALLED_VERSION not in meta.get("labels", {}):
        return live
    wanted = stored(value)
    url = wire.path(resource, meta.get("namespace", ""), meta["name"])
    for attempt in range(1, ATTEMPTS + 1):
        if not differing(wanted, live):
            return live
        try:
            answer = await client.request("PUT", url, body=msgspec.json.encode(exact(wanted, live)))
        except Conflict:
            if attempt == ATTEMPTS:
                raise
            live = msgspec.json.decode(await client.request("GET", url))
        else:
            # A difference that stays is a default of a newer API server.
            return msgspec.json.decode(answer)
    return live


async def _refused(client: Client, told: str) -> None:
    """Wait until the API server refuses the probe of the canary with a message."""
    url = wire.path(canary.PROBED, SYSTEM_NAMESPACE)
    body = msgspec.json.encode(canary.probe())

    async def refuses() -> bool:
        try:
            await client.request("POST", url, query={"dryRun": "All"}, body=body)
        except (Forbidden, Invalid) as error:
            return told in str(error)
        return False

    await _until(
        refuses,
        f"the API server does not enforce Tenantry's policies after {ESTABLISHED_SECONDS:.0f} s; see"
        " `kubectl get validatingadmissionpolicies` and run the command again",
    )


async def end_rights(client: Client, bindings: Sequence[str] = ()) -> None:
    """Take the right to restore installed objects away from the operator, then others, and wait until that is in force.

    Args:
        client: An administrator's.
        bindings: The names of all ClusterRoleBindings of the operator; () to leave it its other rights.

    Raises:
        RetryableError: It takes too long.
    """
    # First, or the operator restores the others.
    subjects = await _end_binding(client, REPAIRS, policy_resource("Validating"), canary.NAME)
    if not bindings:
        return
    await _end_binding(client, ROLE, CONFIGURATIONS, CONFIGURATION)
    for name in bindings:
        await _delete(client, ClusterRoleBinding.resource, "", name)
    await _without(client, subjects, FLOW_SCHEMAS, "")


async def _end_binding(client: Client, binding: str, resource: Resource, name: str) -> Sequence[Subject]:
    """Delete a ClusterRoleBinding, wait until its subjects cannot write an object any more, and return the subjects.

    Raises:
        RetryableError: It takes too long.
    """
    try:
        subjects = (await client.get(ClusterRoleBinding, binding)).subjects
    except NotFound:
        return ()
    await _delete(client, ClusterRoleBinding.resource, "", binding)
    await _without(client, subjects, resource, name)
    return subjects


async def _without(client: Client, subjects: Sequence[Subject], resource: Resource, name: str) -> None:
    """Wait until the API server knows that subjects have no right to write an object."""
    attributes = {"verb": "patch", "group": resource.group, "resource": resource.plural, "name": name}
    users = [
        each.name if each.kind == "User" else f"system:serviceaccount:{each.namespace}:{each.name}" for each in subjects
    ]

    async def ended() -> bool:
        for user in users:
            spec = {"user": user, "resourceAttributes": attributes}
            asked = {"apiVersion": _REVIEWS.api_version, "kind": _REVIEWS.kind, "spec": spec}
            answer = await client.request("POST", wire.path(_REVIEWS), body=wire.encode_json(asked))
            if msgspec.json.decode(answer)["status"]["allowed"]:
                return False
        return True

    await _until(
        ended,
        f"the operator still has the right to write {resource.full_name} after {ESTABLISHED_SECONDS:.0f} s: look for"
        " bindings of cluster-admin or other roles to it, and run the command again",
    )


async def _until(is_met: Callable[[], Awaitable[bool]], problem: str) -> None:
    """Poll in growing pauses until a condition is met: there is no event to wait for.

    Raises:
        RetryableError: It takes too long: `problem`.
    """
    delay = FIRST_PAUSE_SECONDS
    try:
        async with asyncio.timeout(ESTABLISHED_SECONDS):
            while not await is_met():
                await asyncio.sleep(delay)
                delay = min(2 * delay, LAST_PAUSE_SECONDS)
    except TimeoutError as error:
        raise RetryableError(problem) from error


async def in_force(client: Client) -> None:
    """Wait until the API server no longer refuses requests because its mutating policies do not know Tenantry's kinds.

    They look for new kinds every 5 s, and until then refuse what they match with that reason.

    Args:
        client: An administrator's.

    Raises:
        RetryableError: It takes too long.
    """

    async def probe(resource: Resource, value: Json) -> None:
        # Refused for another reason, it has passed the mutating policies.
        with suppress(ApiError):
            await stamped(client, resource, value)

    await all_of(probe(resource, value) for resource, value in approval.probes())


async def stamped(client: Client, resource: Resource, value: Json) -> None:
    """Wait until the API server writes the requester into a request, which is only a dry run.

    Args:
        client: The requester's.
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
        f"the API server does not write the requester into {resource.full_name} after"
        f" {ESTABLISHED_SECONDS:.0f} s: its mutating policies are not in force yet; run the command again",
    )


async def _established(client: Client, name: str) -> None:
    """Wait until the API server serves a custom kind."""
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
            # A generator that is not closed keeps its connection open.
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
