"""`tenantry explain denied` says what the API server says, whatever pod and rules are; and what it mends passes."""

from __future__ import annotations

import random
import re

import msgspec
import pytest
from test_rules_verdicts import (
    EXAMPLES,
    RULES,
    Json,
    classes,  # noqa: F401  # pyright: ignore[reportUnusedImport] - a fixture
    place,
    pods,
)

from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.model import Resource
from tenantry.api.rules import Images, Rules
from tenantry.api.tenant import Tenant
from tenantry.policy.explain.parts import PODS, Part, filled_in, usage
from tenantry.policy.explain.refusal import Obstacle
from tenantry.views.acting import acting_as
from tenantry.views.explain.denied import DenialExplainer, DenialReport
from tenantry.world import quantity
from tenantry.world.rules import Layer, effective
from testkit.api import Api, until
from testkit.draws import drawn
from testkit.refusals import refusal

pytest_plugins = ["testkit.fixtures"]

RULEBOOKS, TRIED = 6, EXAMPLES // 2
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")


async def tell(api: Api, manifest: Json, namespace: str) -> DenialReport:
    """Return what is told of a manifest."""
    async with acting_as(api.client, "", ()) as asker:
        return await DenialExplainer(asker).explain("-", manifest, namespace=namespace)


async def known(api: Api, namespace: str) -> None:
    """Wait until the API server knows the rules of a tenant, those of all: the first is ready before they are."""
    claim: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await refusal(api, CLAIMS, {"metadata": {"name": "c"}, "spec": claim}, namespace)


@pytest.mark.usefixtures("classes")
async def test_it_says_what_the_api_server_says(api: Api, name: str) -> None:
    """X07: of random pods under random rules the verdicts agree, in the same words; what is mended passes."""
    number = random.randrange(2**32)
    print(f"seed {number}")
    books = [
        effective([Layer("Tenant 'x'", msgspec.convert(given, Rules))]) for given in drawn(RULES, RULEBOOKS, number)
    ]
    closed = effective([Layer("Tenant 'x'", Rules(images=Images(allowed=())))])
    await place(api, f"{name}-closed", closed, closed=True)
    for index, book in enumerate(books):
        await place(api, f"{name}-{index}", book)
    denied = mended = 0
    for index, pod in enumerate(drawn(pods(), TRIED, number)):
        namespace = f"{name}-{index % len(books)}"
        manifest: Json = {"apiVersion": "v1", "kind": "Pod", **pod}
        answer = await tell(api, manifest, namespace)
        (server,) = answer.servers
        assert server.agrees is not False, f"seed {number}: {namespace} {pod} {answer}"
        assert answer.denied is not server.accepts, f"seed {number}: {pod} {answer}"
        denied += any(each.by is Obstacle.RULE for each in answer.causes)
        if answer.fixed is not None:
            mended += 1
            again = await tell(api, answer.fixed, namespace)
            assert not again.denied, f"seed {number}: {answer.fixed} {again}"
    assert denied > TRIED / 5
    # How many have a fix depends on the drawn rules: of 60 draws, between a quarter and nearly all for Python alone.
    assert mended > denied / 20, (denied, mended)
    for index in range(len(books)):
        await api.delete(Namespace.resource, f"{name}-{index}")
    await api.delete(Namespace.resource, f"{name}-closed")


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(
    ("kind", "spec", "rule", "mends"),
    [
        ("Service", {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30123}]}, "services.types", True),
        ("Service", {"ports": [{"port": 80}], "externalIPs": ["192.0.2.1"]}, "services.externalIPs", True),
        ("Service", {"type": "ExternalName", "externalName": "x.example"}, "services.externalName", False),
        (
            "PersistentVolumeClaim",
            {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "v"},
            "storageClasses.existingVolumes",
            True,
        ),
    ],
)
async def test_other_kinds_than_pods(api: Api, name: str, kind: str, spec: Json, rule: str, *, mends: bool) -> None:
    """X07: Services and claims under Tenantry's standard."""
    await api.make_tenant(name)
    await known(api, name)
    manifest: Json = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    answer = await tell(api, manifest, name)
    assert [(each.rule, each.source) for each in answer.causes] == [(rule, "Tenantry's standard")]
    assert answer.servers[0].agrees is True
    assert (answer.fixed is not None) is mends


@pytest.mark.usefixtures("operator")
async def test_a_namespace_without_a_tenant_has_no_rules(api: Api, name: str) -> None:
    """X07: what is told of a namespace that is no tenant's are not the rules of tenants."""
    await api.create(Namespace.resource, {"metadata": {"name": name}})
    spec = {"hostNetwork": True, "containers": [{"name": "c", "image": "i", "securityContext": {"privileged": True}}]}
    answer = await tell(api, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}, name)
    assert all(each.by is not Obstacle.RULE for each in answer.causes)
    await api.delete(Namespace.resource, name)


@pytest.mark.usefixtures("operator")
async def test_a_suspended_tenant_is_told(api: Api, name: str) -> None:
    """X07: rules that would not help are not read."""
    await api.make_tenant(name)
    await api.patch(Tenant.resource, name, {"spec": {"suspended": True}})
    await api.condition(name, "Suspended", holds=True)
    spec = {"containers": [{"name": "c", "image": "i"}]}
    answer = await tell(api, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}, name)
    assert Obstacle.SUSPENSION in {each.by for each in answer.causes}
    assert answer.fixed is None


@pytest.mark.usefixtures("operator")
async def test_a_suspension_is_reported_to_users_that_it_locks_out(api: Api, name: str) -> None:
    """X07: the owner cannot read it and needs no role; an administrator can ask for the owner."""
    await api.make_tenant(name)
    await api.patch(Tenant.resource, name, {"spec": {"suspended": True}})
    await api.condition(name, "Suspended", holds=True)
    manifest: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}

    async def kept_out() -> bool:
        return not await api.may({"kind": "User", "name": "alice"}, "create", "", "configmaps", name)

    await until(kept_out, "the owner is kept out")
    async with acting_as(api.client, "alice", ()) as asker:
        answer = await DenialExplainer(asker).explain("-", manifest, namespace=name)
    assert [(each.by, each.message) for each in answer.causes] == [
        (Obstacle.SUSPENSION, f"Tenant '{name}' is suspended")
    ]
    async with acting_as(api.client, "alice", ()) as asker, acting_as(asker.client, "", ()) as alone:
        answer = await DenialExplainer(alone).explain("-", manifest, namespace=name)
    assert [each.by for each in answer.causes] == [Obstacle.RIGHTS]
    assert any("suspended" in note for note in answer.notes)


@pytest.mark.usefixtures("operator")
async def test_endpoints_of_an_administrator(api: Api, name: str) -> None:
    """X07: the cluster's machinery may write endpoints, and is not told otherwise."""
    await api.make_tenant(name)
    await known(api, name)
    subsets = [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]}]
    manifest: Json = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "x"}, "subsets": subsets}
    answer = await tell(api, manifest, name)
    assert (answer.denied, answer.servers[0].agrees, answer.notes) == (False, True, ())


# -- what a pod uses of a quota -------------------------------------------------------------------


def container(cpu: str, **more: object) -> Json:
    """Return a container with requests and limits."""
    amounts = {"cpu": cpu, "memory": "1Mi", "ephemeral-storage": "1Mi"}
    return {"name": f"c{cpu}", "image": "i", "resources": {"requests": amounts, "limits": amounts}, **more}


USING: list[Json] = [
    {"containers": [container("1"), container("2")]},
    {"containers": [container("1")], "initContainers": [container("3"), container("2")]},
    {"containers": [container("1")], "initContainers": [container("2", restartPolicy="Always"), container("5")]},
    {"containers": [container("1")], "initContainers": [container("5"), container("2", restartPolicy="Always")]},
    {"containers": [container("1")], "resources": {"requests": {"cpu": "4"}, "limits": {"cpu": "7"}}},
]


@pytest.mark.parametrize("spec", USING)
async def test_what_a_pod_uses_is_what_kubernetes_counts(api: Api, name: str, spec: Json) -> None:
    """X07: so that what is said to be short is what the API server finds short."""
    await api.create(Namespace.resource, {"metadata": {"name": name}})
    keys = ("requests.cpu", "limits.cpu", "requests.memory", "limits.memory", "requests.ephemeral-storage", "pods")
    await api.create(
        ResourceQuota.resource, {"metadata": {"name": "q"}, "spec": {"hard": dict.fromkeys(keys, 0)}}, name
    )
    manifest: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
    said: dict[str, str] = {}

    async def counted() -> bool:
        cause = next((each for each in (await tell(api, manifest, name)).causes if each.by is Obstacle.QUOTA), None)
        found = re.search(r"requested: ([^ ]*), used", cause.message) if cause is not None else None
        told = found[1].split(",") if found is not None else []
        said.update({each.partition("=")[0]: each.partition("=")[2] for each in told})
        return set(keys) <= said.keys()

    await until(counted, "Kubernetes counts")
    part = Part(resource=PODS, object=manifest)
    used = usage(part, filled_in(manifest, PODS, ()))
    assert {key: quantity.parse(used[key]) for key in keys} == {key: quantity.parse(said[key]) for key in keys}
    await api.delete(Namespace.resource, name)
