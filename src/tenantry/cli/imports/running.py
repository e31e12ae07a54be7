"""Checks that the programs of the other tool are stopped, because they would work against Tenantry."""

from __future__ import annotations

from tenantry.api.errors import InputError, NotFound
from tenantry.api.model import KubernetesObject, Model, Resource
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.world.imports.objects import Controllers

_GROUP = "admissionregistration.k8s.io"
WEBHOOKS = (
    Resource(_GROUP, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", namespaced=False),
    Resource(_GROUP, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False),
)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")


class _Replicas(Model, frozen=True, kw_only=True):
    replicas: int = 1


class _Deployment(KubernetesObject, frozen=True, kw_only=True):
    resource = DEPLOYMENTS
    spec: _Replicas = _Replicas()


async def check_stopped(client: Client, title: str, controllers: Controllers) -> None:
    """Check that the other tool does not run: its controllers would undo our changes, and its webhooks refuse them.

    Raises:
        InputError: A Deployment of it has replicas, or one of its webhooks exists.
    """
    place = controllers.namespace
    running = place and [found for found in await client.list(_Deployment, namespace=place) if found.spec.replicas]
    hooks = [
        (resource, name)
        for name in controllers.webhooks
        for resource in WEBHOOKS
        if await _exists(client, resource, name)
    ]
    if not running and not hooks:
        return
    commands = [f"`kubectl -n {place} scale deployment --all --replicas=0`"] if running else []
    commands += [f"`kubectl delete {resource.kind.lower()} {name}`" for resource, name in hooks]
    raise InputError(
        f"{title} still works here, and would work against Tenantry: stop it first, which changes nothing else, with"
        f" {' and '.join(commands)}"
    )


async def _exists(client: Client, resource: Resource, name: str) -> bool:
    try:
        await client.request("GET", wire.path(resource, "", name))
    except NotFound:
        return False
    return True
