"""Pods in the cluster's sandbox: set by the API server for every creator, and enforced."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tenantry.api import marks, reasons
from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Resource
from tenantry.api.policyparameters import PolicyParameters, texts_of
from tenantry.api.runtime import RuntimeClass
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenancyrules import MAPS, NAME, TenancyRules
from tenantry.api.tenant import Tenant
from tenantry.audit import runner
from tenantry.audit.catalog import CHECKS
from tenantry.audit.check import Verdict
from tenantry.audit.gather import gather
from tenantry.kube import kubeconfig, wire
from tenantry.kube.client import MERGE_PATCH, Client
from tenantry.local.cluster import LocalCluster
from tenantry.policy.catalog import violations
from tenantry.policy.request import Request
from tenantry.views.drift.changes import find
from tenantry.world.rules import RUNTIME_CLASS
from testkit import versions
from testkit.api import JOBS, PODS, Api, until
from testkit.installation import without_repairs
from testkit.operators import Operator
from testkit.people import as_person
from testkit.refusals import refusal, tried
from testkit.trees import WORKSPACE, Trees, subnamespace_json

pytest_plugins = ["testkit.fixtures"]
pytestmark = pytest.mark.early

Json = dict[str, Any]
Made = Callable[..., Awaitable[None]]

CLASSES = RuntimeClass.resource
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
BINDINGS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingadmissionpolicybindings",
    "MutatingAdmissionPolicyBinding",
    namespaced=False,
)
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
SANDBOXED: Json = {"runtime": "Sandboxed"}
LIMITS: Json = {"limits": {"cpu": "10m", "memory": "10Mi"}}
POD: Json = {"containers": [{"name": "web", "image": "busybox", "resources": LIMITS}]}


@pytest_asyncio.fixture
async def alice(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """The owner, with a certificate of her own."""
    async with as_person(tenancy, tmp_path, "alice") as person:
        yield person


@pytest_asyncio.fixture
async def runtime(api: Api, operator: Operator) -> AsyncGenerator[Made]:
    """Make a RuntimeClass, which is gone after the test, and known to be."""
    made: list[str] = []
    await forgotten(api)

    async def make(name: str, handler: str, labels: dict[str, str] | None = None, **more: object) -> None:
        made.append(name)
        await api.create(CLASSES, {"metadata": {"name": name, "labels": labels or {}}, "handler": handler, **more})

    yield make
    for name in made:
        await api.delete(CLASSES, name)
    await api.delete(TenancyDefaults.resource, "default")
    if not operator.is_running:
        await operator.start()
        await operator.leads()
    await forgotten(api)


async def forgotten(api: Api) -> None:
    """Wait until the rules of all know of no sandbox: a new tenant would get that of the test before, and no pod."""

    async def so() -> bool:
        shared = await api.find(TenancyRules.resource, NAME, marks.SYSTEM_NAMESPACE)
        return shared is not None and RUNTIME_CLASS not in shared["spec"]["enforce"].get("chosen", {})

    await until(so, "the rules of all know of no sandbox")


async def in_force(api: Api) -> None:
    """Wait until the rules of all name the sandbox: its own controller writes them, beside that of the tenant."""

    async def so() -> bool:
        shared = await api.get(PolicyParameters.resource, MAPS["enforce"], marks.SYSTEM_NAMESPACE)
        return RUNTIME_CLASS in texts_of(shared["metadata"]["annotations"]).get("chosen", "")

    await until(so, "the rules of all name the sandbox")


def pod(**spec: object) -> Json:
    """Return a pod."""
    return {"metadata": {"name": "p"}, "spec": {**POD, **spec}}


async def runs_in(person: Api, namespace: str, runtime: str, **spec: object) -> None:
    """Wait until a new pod runs in a RuntimeClass: policies take a moment to come into force."""
    seen = ""

    async def so() -> bool:
        nonlocal seen
        seen = await _runtime(person, namespace, **spec)
        return seen == runtime

    try:
        await until(so, f"pods in {namespace} run in {runtime!r}")
    except AssertionError as error:
        raise AssertionError(f"{error}: {seen}") from error


async def _runtime(person: Api, namespace: str, **spec: object) -> str:
    try:
        made = await tried(person, PODS, pod(**spec), namespace)
    except Forbidden as error:
        return str(error)
    runtime: str = made["spec"].get("runtimeClassName", "")
    return runtime


async def refused(person: Api, namespace: str, text: str, **spec: object) -> None:
    """Wait until a pod is refused with a text."""

    async def so() -> bool:
        return text in await refusal(person, PODS, pod(**spec), namespace)

    await until(so, f"a pod in {namespace} is refused: {text}")


@versions.changes_without_the_operator
async def test_every_pod_is_put_into_the_sandbox(
    api: Api, alice: Api, operator: Operator, runtime: Made, name: str
) -> None:
    """E14, H03: for every creator of the pod; another runtime is refused; all without the operator."""
    await runtime("sbx", "runsc")
    await runtime("plain", "runc")
    await api.make_tenant(name, isolation=SANDBOXED)
    found = await api.condition(name, reasons.SANDBOXED, holds=True, reason=reasons.RUNTIME_CLASS_IN_FORCE)
    assert "'sbx'" in next(each.message for each in found.status.conditions if each.type == reasons.SANDBOXED)
    await in_force(api)
    await operator.stop()
    await runs_in(alice, name, "sbx")
    await runs_in(alice, name, "sbx", runtimeClassName="sbx")
    told = await refusal(alice, PODS, pod(runtimeClassName="plain"), name)
    assert (
        "pod has runtimeClassName 'plain' (rule isolation.runtime of the Tenant): must be 'sbx'; leave it out, and it"
        " is put in" in told
    )
    assert await refusal(api, PODS, pod(runtimeClassName="plain"), name), "rules hold for administrators too"
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": POD}
    await alice.create(
        DEPLOYMENTS,
        {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": labels}, "template": template}},
        name,
    )
    job = {"template": {"spec": {**POD, "restartPolicy": "Never"}}}
    await alice.create(JOBS, {"metadata": {"name": "once"}, "spec": job}, name)

    async def both() -> bool:
        return len(await alice.list(PODS, name)) == 2

    await until(both, "the Deployment and the Job have made a pod each")
    assert [each["spec"]["runtimeClassName"] for each in await alice.list(PODS, name)] == ["sbx", "sbx"]


@pytest.mark.usefixtures("operator")
@versions.changes_without_the_operator
async def test_pods_stay_out_where_nothing_puts_them_in(api: Api, alice: Api, runtime: Made, name: str) -> None:
    """E14: to refuse does not rest on the policy that writes: the API server may know the one and not yet the other."""
    await runtime("sbx", "runsc")
    await api.make_tenant(name, isolation=SANDBOXED)
    await runs_in(alice, name, "sbx")
    async with without_repairs(api.client):
        for each in ("tenantry-sandbox", "tenantry-sandbox-shared"):
            await api.delete(BINDINGS, each)
        await refused(alice, name, "pod has runtimeClassName '' (rule isolation.runtime of the Tenant): must be 'sbx'")
        await runs_in(alice, name, "sbx", runtimeClassName="sbx")
    await runs_in(alice, name, "sbx")


@pytest.mark.usefixtures("operator")
async def test_what_kubelets_and_debuggers_bring_stays_in_its_runtime(
    tenancy: LocalCluster, api: Api, alice: Api, runtime: Made, name: str
) -> None:
    """E14: a mirrored pod runs already, as its kubelet says; what comes into a pod later runs where the pod does."""
    await runtime("sbx", "runsc")
    await api.make_tenant(name, isolation=SANDBOXED)
    await runs_in(alice, name, "sbx")
    as_node = msgspec.structs.replace(
        kubeconfig.load([tenancy.kubeconfig_path]),
        impersonate="a-node",
        impersonate_groups=("system:masters", "system:nodes"),
    )
    mirror = pod(nodeName="n")
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "hash"}
    async with Client(as_node) as client:
        assert "runtimeClassName" not in (await tried(Api(client), PODS, mirror, name))["spec"]
    await alice.create(PODS, pod(), name)
    debugger = {"name": "debugger", "image": "busybox", "targetContainerName": "web"}
    url = wire.path(PODS, name, "p", "ephemeralcontainers")
    body = msgspec.json.encode({"spec": {"ephemeralContainers": [debugger]}})
    await api.client.request("PATCH", url, body=body, content_type=MERGE_PATCH)  # what owners may not
    found = await alice.get(PODS, "p", name)
    assert found["spec"]["ephemeralContainers"][0]["name"] == "debugger"
    assert found["spec"]["runtimeClassName"] == "sbx"
    # `kubectl debug --copy-to` makes another pod of it, with the runtime that it finds there.
    copied = {key: value for key, value in found["spec"].items() if key not in {"ephemeralContainers", "nodeName"}}
    copy = await tried(alice, PODS, {"metadata": {"name": "copy"}, "spec": copied}, name)
    assert copy["spec"]["runtimeClassName"] == "sbx"


@pytest.mark.usefixtures("operator")
async def test_what_the_sandbox_costs_is_counted(api: Api, alice: Api, runtime: Made, name: str) -> None:
    """E14, E08: the overhead of the RuntimeClass is part of each pod, and of the quota that it uses."""
    await runtime("sbx", "runsc", overhead={"podFixed": {"cpu": "250m"}})
    await api.make_tenant(name, isolation=SANDBOXED, quota={"hard": {"requests.cpu": "1"}})
    await runs_in(alice, name, "sbx")
    asks: Json = {
        "containers": [{**POD["containers"][0], "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}}]
    }
    made = await alice.create(PODS, pod(**asks), name)
    assert made["spec"]["overhead"] == {"cpu": "250m"}

    async def counted() -> bool:
        quota = await api.get(QUOTAS, "tenantry-quota", name)
        return quota["status"].get("used", {}).get("requests.cpu") == "750m"

    await until(counted, "the overhead is counted")
    assert "exceeded quota" in await refusal(alice, PODS, {**pod(**asks), "metadata": {"name": "second"}}, name)


async def test_without_a_sandbox_pods_are_refused_until_there_is_one(
    api: Api, alice: Api, operator: Operator, runtime: Made, name: str
) -> None:
    """E14: a condition says what is missing; what comes and goes is followed; the refusal needs no operator."""
    await api.make_tenant(name, isolation=SANDBOXED)
    found = await api.condition(name, reasons.SANDBOXED, holds=False, reason=reasons.NO_RUNTIME_CLASS)
    told = next(each.message for each in found.status.conditions if each.type == reasons.SANDBOXED)
    assert "pods are refused (rule runtimeClasses.onMissingSandbox of Tenantry's standard)" in told
    text = (
        "pod must run in a sandbox, and the cluster has none (rule runtimeClasses.onMissingSandbox of Tenantry's"
        " standard): an administrator must make a RuntimeClass of one, or set isolation.runtime to Shared"
    )
    await refused(alice, name, text)
    await operator.stop()
    assert text in await refusal(alice, PODS, pod(), name)
    await operator.start()
    await operator.leads()
    await runtime("plain", "runc")
    await runtime("sbx", "kata-qemu")
    await runs_in(alice, name, "sbx")
    await api.condition(name, reasons.SANDBOXED, holds=True)
    await api.delete(CLASSES, "sbx")
    await refused(alice, name, text)
    await api.condition(name, reasons.SANDBOXED, holds=False)


@pytest.mark.usefixtures("operator")
async def test_an_administrator_may_let_pods_run_without(api: Api, alice: Api, runtime: Made, name: str) -> None:
    """E14: by the rule onMissingSandbox; with a sandbox there, it opens nothing."""
    rules: Json = {"runtimeClasses": {"allowed": [], "onMissingSandbox": "Allow"}}
    await api.make_tenant(name, isolation=SANDBOXED, rules=rules)
    await runs_in(alice, name, "")
    found = await api.condition(name, reasons.SANDBOXED, holds=False)
    assert "as the rule runtimeClasses.onMissingSandbox allows" in str(found.status.conditions)
    await runtime("sbx", "runsc")
    await runtime("plain", "runc")
    await runs_in(alice, name, "sbx")
    told = await refusal(alice, PODS, pod(runtimeClassName="plain"), name)
    assert f"Tenant '{name}'" in told, "it has rules of its own, which name it"
    below = {**WORKSPACE, "rules": {"runtimeClasses": {"onMissingSandbox": "Refuse"}}}
    child = await Trees(api).make(name, "web", below)
    await runs_in(alice, child, "sbx")
    await api.delete(CLASSES, "sbx")
    await refused(alice, child, f"(rule runtimeClasses.onMissingSandbox of Subnamespace '{name}/web')")
    looser = {**WORKSPACE, "rules": {"runtimeClasses": {"onMissingSandbox": "Allow"}}}
    told = await refusal(alice, Subnamespace.resource, subnamespace_json("looser", looser), child)
    assert "spec.rules.runtimeClasses.onMissingSandbox must not be looser" in told


@pytest.mark.usefixtures("operator")
async def test_who_says_nothing_is_sandboxed_where_that_can_be(api: Api, alice: Api, runtime: Made, name: str) -> None:
    """E14, H03: the default; without a sandbox pods run, and a condition says how; Shared stays shared."""
    await api.make_tenant(name)
    await api.make_tenant(f"{name}-s", isolation={"runtime": "Shared"})
    child = await Trees(api).make(name, "web")
    assert marks.RUNTIME not in await Trees(api).labels(name), "a cluster without a sandbox costs nothing"
    found = await api.condition(name, reasons.SANDBOXED, holds=False, reason=reasons.KERNEL_SHARED)
    assert "pods share the kernel of their node" in str(found.status.conditions)
    await runs_in(alice, child, "")
    await runtime("sbx", "runsc")
    for namespace in (name, child):
        await runs_in(alice, namespace, "sbx")
    await api.condition(name, reasons.SANDBOXED, holds=True)
    await runs_in(alice, f"{name}-s", "")
    shared = await api.tenant(f"{name}-s")
    assert not [each for each in shared.status.conditions if each.type == reasons.SANDBOXED]
    await api.delete(CLASSES, "sbx")
    for namespace in (name, child):
        await runs_in(alice, namespace, "")
    await api.condition(name, reasons.SANDBOXED, holds=False)


@pytest.mark.usefixtures("operator")
async def test_the_sandbox_is_the_one_that_is_named(api: Api, alice: Api, runtime: Made, name: str) -> None:
    """E14: by TenancyDefaults, else by its label, else by its handler; one that is named and not there is missing."""
    await runtime("aaa", "runsc")
    await api.make_tenant(name, isolation=SANDBOXED)
    await runs_in(alice, name, "aaa")
    await runtime("zzz", "ours", {marks.SANDBOX: "true"})
    await runs_in(alice, name, "zzz")
    spec = {"sandbox": {"runtimeClassName": "mine"}}
    await api.create(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": spec})
    await refused(alice, name, "and the cluster has none")
    found = await api.condition(name, reasons.SANDBOXED, holds=False)
    assert "the RuntimeClass 'mine', spec.sandbox of TenancyDefaults 'default', does not exist" in str(
        found.status.conditions
    )
    await runtime("mine", "ours-as-well")
    await runs_in(alice, name, "mine")


@pytest.mark.usefixtures("operator")
async def test_in_its_own_slice_a_tenant_chooses(api: Api, alice: Api, runtime: Made, name: str) -> None:
    """E14: on its own nodes a tenant may choose another runtime; only an administrator sets the label."""
    await runtime("sbx", "runsc")
    await runtime("plain", "runc")
    await api.make_tenant(name, isolation=SANDBOXED)
    await runs_in(alice, name, "sbx")
    mine = {"metadata": {"labels": {marks.SLICE: "mine"}}}
    assert await refusal(alice, Namespace.resource, mine, "", patch=name)
    await api.patch(Namespace.resource, name, mine)
    await runs_in(alice, name, "plain", runtimeClassName="plain")
    await runs_in(alice, name, "sbx")


@pytest.mark.usefixtures("operator")
async def test_a_subnamespace_only_tightens(api: Api, alice: Api, runtime: Made, name: str) -> None:
    """E14: Sandboxed below what is Shared; never Shared below what is Sandboxed."""
    await runtime("sbx", "runsc")
    await runtime("plain", "runc")
    trees = Trees(api)
    await api.make_tenant(name, isolation={"runtime": "Shared"})
    child = await trees.make(name, "web", {**WORKSPACE, "isolation": SANDBOXED})
    grandchild = await trees.make(child, "deep")
    beside = await trees.make(name, "beside", {**WORKSPACE, "isolation": {"runtime": "Shared"}})
    await trees.condition(name, "web", reasons.SANDBOXED, holds=True)
    for namespace in (child, grandchild):
        await runs_in(alice, namespace, "sbx")
        told = await refusal(alice, PODS, pod(runtimeClassName="plain"), namespace)
        assert f"(rule isolation.runtime of Subnamespace '{name}/web')" in told
    for namespace in (name, beside):
        await runs_in(alice, namespace, "plain", runtimeClassName="plain")
    shared = subnamespace_json("open", {**WORKSPACE, "isolation": {"runtime": "Shared"}})
    told = await refusal(alice, Subnamespace.resource, shared, child)
    assert f"spec.isolation.runtime must not be Shared in the namespace '{child}'" in told
    assert not await refusal(alice, Subnamespace.resource, shared, name)
    patch = {"spec": {"isolation": {"runtime": "Shared"}}}
    assert await refusal(alice, Subnamespace.resource, patch, child, patch="deep")
    await api.patch(Tenant.resource, name, {"spec": {"isolation": {"runtime": "Sandboxed"}}})
    for namespace in (name, beside):
        await runs_in(alice, namespace, "sbx")
    await api.delete(CLASSES, "sbx")
    for namespace in (beside, grandchild):
        await refused(alice, namespace, "and the cluster has none")
    await trees.condition(name, "web", reasons.SANDBOXED, holds=False)
    assert "of Tenantry's standard" in await trees.message(name, "web", reasons.SANDBOXED)


@pytest.mark.usefixtures("operator")
async def test_python_says_what_the_api_server_says(api: Api, alice: Api, runtime: Made, name: str) -> None:
    """X07, E15: the same words, also of rules that only warn; and what is as it should be is no drift."""
    await runtime("sbx", "runsc")
    await runtime("plain", "runc")
    rules: Json = {"runtimeClasses": {"allowed": [], "action": "Warn"}}
    await api.make_tenant(name, isolation=SANDBOXED, rules=rules)
    await runs_in(alice, name, "sbx")
    # With a Subnamespace in the cluster, the ConfigMaps of rules are read a second time: as objects to inherit.
    await api.make_tenant(f"{name}-b")
    await Trees(api).ask(f"{name}-b", "web", WORKSPACE)
    await Trees(api).ready(f"{name}-b", "web")

    async def as_it_should_be() -> bool:
        # Policies may know the sandbox before the rules that people read have it: both are written at once.
        (drift,) = await find(api.client, [name], None)
        return not drift.changes

    await until(as_it_should_be, "what is as it should be is no drift")
    labels = (await api.get(Namespace.resource, name))["metadata"]["labels"]
    spec = (await api.client.get(TenancyRules, NAME, name)).spec
    for runtime_class in ("sbx", "plain"):
        value = pod(runtimeClassName=runtime_class)
        request = Request(resource="pods", namespace=name, namespace_labels=labels, object=value)
        told = [str(each) for each in violations(request, spec.enforce)]
        assert bool(told) == (runtime_class == "plain")
        assert (told or [""])[0] in await refusal(alice, PODS, value, name)
        warned = [each.rule for each in violations(request, spec.warn)]
        assert warned == (["runtimeClasses.allowed", "isolation.runtime"] if runtime_class == "plain" else [])


@pytest.mark.usefixtures("operator")
async def test_an_audit_tells_who_is_sandboxed(api: Api, alice: Api, runtime: Made, name: str) -> None:
    """X06, E14: a class is a sandbox by its label, too; another one is a way out where nothing refuses it."""
    await runtime("sbx", "ours", {marks.SANDBOX: "true"})
    await runtime("plain", "runsc", {marks.SANDBOX: "false"})
    await api.make_tenant(name, isolation=SANDBOXED)
    await api.make_tenant(f"{name}-s", isolation={"runtime": "Shared"})
    await runs_in(alice, name, "sbx")
    await runs_in(alice, f"{name}-s", "plain", runtimeClassName="plain")
    checks = [each for each in CHECKS if each.id == "TNT-POD-023"]

    async def verdict(namespace: str) -> Verdict:
        user, groups = await runner.require(alice.client)
        place = await gather(
            api.client, namespace=namespace, user=user, groups=groups, tenant=namespace, image="registry.invalid/pause"
        )
        (result,) = (await runner.audit(alice.client, place, checks)).checks
        return result.verdict

    assert await verdict(name) is Verdict.PASSED
    assert await verdict(f"{name}-s") is Verdict.FAILED
    await api.patch(Namespace.resource, name, {"metadata": {"labels": {marks.SLICE: "mine"}}})
    await runs_in(alice, name, "plain", runtimeClassName="plain")
    assert await verdict(name) is Verdict.PASSED  # on its own nodes it chooses
