"""A JSON client of the API server for tests, and functions that wait for a condition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from tenantry.api import marks, reasons
from tenantry.api.errors import Conflict, Forbidden, NotFound
from tenantry.api.kubernetes import ResourceQuota, RoleBinding
from tenantry.api.model import Resource
from tenantry.api.tenant import Tenant
from tenantry.engine.conditions import find, is_true
from tenantry.kube import wire
from tenantry.kube.client import Client

Json = dict[str, Any]
T = TypeVar("T")

SECONDS = 120.0
"""The time limit of a wait that an event usually ends much earlier: the machine may be busy."""

UNCOUNTED = "status unknown for quota"
"""The API server's words for a quota that Kubernetes has not counted yet."""
_PAUSE_SECONDS = 0.1

PODS = Resource("", "v1", "pods", "Pod")
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob")
JOBS = Resource("batch", "v1", "jobs", "Job")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)


class Api:
    """Objects as JSON.

    Args:
        client: The client that sends the requests.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        """Return one object.

        Raises:
            NotFound: There is none.
        """
        return msgspec.json.decode(await self.client.request("GET", wire.path(resource, namespace, name)))

    async def find(self, resource: Resource, name: str, namespace: str = "") -> Json | None:
        """Return one object; None if it does not exist."""
        try:
            return await self.get(resource, name, namespace)
        except NotFound:
            return None

    async def list(self, resource: Resource, namespace: str = "") -> list[Json]:
        """Return all objects of a kind."""
        data = await self.client.request("GET", wire.path(resource, namespace))
        items: list[Json] = msgspec.json.decode(data)["items"]
        return items

    async def create(self, resource: Resource, value: Json, namespace: str = "", *, subresource: str = "") -> Json:
        """POST an object, or to a subresource of the one that it names, once the quotas there are counted."""
        name = value["metadata"]["name"] if subresource else ""
        body = msgspec.json.encode({"apiVersion": resource.api_version, "kind": resource.kind, **value})
        url = wire.path(resource, namespace, name, subresource)
        end = time.monotonic() + SECONDS
        while True:
            try:
                return msgspec.json.decode(await self.client.request("POST", url, body=body))
            except (Conflict, Forbidden) as error:
                # Kubernetes' quota controller wrote the use of the namespace at the same time, or has not counted yet:
                # it does so a moment after a quota was created, and for a new custom kind after up to half a minute.
                words = "resourcequotas" if isinstance(error, Conflict) else UNCOUNTED
                if words not in str(error) or time.monotonic() > end:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)

    async def patch(self, resource: Resource, name: str, patch: Json, namespace: str = "") -> Json:
        """Merge a patch into an object."""
        return msgspec.json.decode(await self.client.merge_patch(resource, namespace, name, patch))

    async def delete(
        self, resource: Resource, name: str, namespace: str = "", *, propagation: str = "Background"
    ) -> None:
        """DELETE an object, if it exists."""
        try:
            await self.client.delete(resource, namespace, name, propagation=propagation)
        except NotFound:
            return

    # -- tenants ----------------------------------------------------------------------------------

    async def tenant(self, name: str) -> Tenant:
        """Return a tenant."""
        return await self.client.get(Tenant, name)

    async def make_tenant(self, name: str, **spec: object) -> Tenant:
        """Create a tenant that alice owns, wait until it is ready and she can work in it, and return it."""
        await self.create(Tenant.resource, tenant_json(name, **spec))
        tenant = await self.ready(name)
        await self.open(name)
        return tenant

    async def open(self, namespace: str) -> None:
        """Wait until the owners of a tenant's namespace can work in it; return at once if it has none.

        The authorizer of the API server sees a new binding a moment after it was written.
        Pods have to wait for the ServiceAccount that the controller-manager makes in each namespace.
        """
        subjects = (await self.get(RoleBinding.resource, marks.OWNER_ROLE, namespace)).get("subjects", [])

        async def so() -> bool:
            for subject in subjects:
                # The controller-manager aggregates two roles into the owners' role.
                for group, plural in (("", "pods"), (marks.GROUP, "subnamespaces")):
                    if not await self.may(subject, "create", group, plural, namespace):
                        return False
            return not subjects or await self.find(SERVICE_ACCOUNTS, "default", namespace) is not None

        # The controller-manager retries only after up to a minute if the API server was restarted several times.
        await until(so, f"the owners of {namespace} have their rights", seconds=3 * SECONDS)

    async def default_account(self, namespace: str) -> None:
        """Wait for the ServiceAccount that the controller-manager makes in each namespace, and that pods need."""

        async def so() -> bool:
            return await self.find(SERVICE_ACCOUNTS, "default", namespace) is not None

        await until(so, f"namespace {namespace} has its default ServiceAccount", seconds=3 * SECONDS)

    async def may(self, subject: Json, verb: str, group: str, plural: str, namespace: str = "") -> bool:
        """Return whether the API server knows that a subject of RBAC has a right."""
        whole = f"system:serviceaccount:{subject.get('namespace')}:{subject['name']}"
        who: Json = {
            "User": {"user": subject["name"]},
            "Group": {"groups": [subject["name"]]},
            "ServiceAccount": {"user": whole},
        }[subject["kind"]]
        asked = {"verb": verb, "group": group, "resource": plural, "namespace": namespace}
        review = await self.create(_REVIEWS, {"metadata": {}, "spec": {**who, "resourceAttributes": asked}})
        return bool(review["status"]["allowed"])

    async def ready(self, name: str) -> Tenant:
        """Wait until a tenant is ready for its current spec, and return it."""
        return await self.condition(name, reasons.READY, holds=True)

    async def condition(self, name: str, type_: str, *, holds: bool, reason: str = "") -> Tenant:
        """Wait until a condition has a status for the current spec, and return the tenant."""
        tenant: Tenant | None = None

        async def so() -> Tenant | None:
            nonlocal tenant
            tenant = await self.tenant(name)
            condition = find(tenant.status.conditions, type_)
            current = tenant.status.observed_generation == tenant.metadata.generation
            right = is_true(tenant.status.conditions, type_) is holds
            told = not reason or (condition is not None and condition.reason == reason)
            return tenant if current and right and told else None

        # It may have a control plane of its own, which starts first.
        return await until(
            so,
            f"tenant {name!r} has {type_}={holds} {reason}",
            seconds=3 * SECONDS,
            seen=lambda: tenant and tenant.status.conditions,
        )

    async def has_counted(self, *namespaces: str) -> bool:
        """Return whether Kubernetes has come to every quota there: it counts what each of its keys is about."""
        quotas = [each for namespace in namespaces for each in await self.list(ResourceQuota.resource, namespace)]
        return all(
            each.get("status", {}).get("hard") == each["spec"]["hard"]
            and each["status"].get("used", {}).keys() == each["spec"]["hard"].keys()
            for each in quotas
        )

    async def gone(self, resource: Resource, name: str, namespace: str = "") -> None:
        """Wait until an object is gone."""

        async def so() -> bool:
            return await self.find(resource, name, namespace) is None

        await until(so, f"{resource.kind} {name!r} is gone", seconds=2 * SECONDS)


def tenant_json(name: str, **spec: object) -> Json:
    """Return a tenant that alice owns, as JSON."""
    return {"metadata": {"name": name}, "spec": {"owners": [{"kind": "User", "name": "alice"}], **spec}}


async def until(
    check: Callable[[], Awaitable[T | None]],
    what: str,
    *,
    seconds: float = SECONDS,
    seen: Callable[[], object] = lambda: None,
) -> T:
    """Call a check repeatedly until its result is true, and return that result.

    Args:
        check: The check.
        what: What it waits for.
        seconds: How long.
        seen: What a failure reports: what the last check has seen.

    Raises:
        AssertionError: The time is up.
    """
    start = time.monotonic()
    while (waited := time.monotonic() - start) < seconds:
        found = await check()
        if found:
            return found
        # Long waits ask less often: thirty requests a second would slow down the server that is waited for.
        await asyncio.sleep(min(0.03 + waited / 20, 0.25))
    raise AssertionError(f"not so after {seconds:.0f} s: {what}; the last check saw {seen()}")


async def stays(check: Callable[[], Awaitable[object]], what: str, *, seconds: float = 1.0) -> None:
    """Call a check repeatedly for some time; its result must stay true.

    Raises:
        AssertionError: A result was false.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not await check():
            raise AssertionError(f"it did not stay so: {what}")
        await asyncio.sleep(0.05)
