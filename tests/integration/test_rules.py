"""What rules refuse, and how they are told: written at three levels, merged by the operator, kept by the API server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tenantry.api import marks, reasons
from tenantry.api.errors import Forbidden, Invalid
from tenantry.api.kubernetes import Namespace
from tenantry.api.policyparameters import PREFIX, PolicyParameters
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenancyrules import NAME, TenancyRules
from tenantry.api.tenant import Tenant
from tenantry.install import apply, manifests
from tenantry.install.waves import resource_of
from tenantry.kube import wire
from tenantry.local.cluster import LocalCluster
from testkit import versions
from testkit.api import PODS, Api, tenant_json, until
from testkit.operators import Operator
from testkit.people import as_person
from testkit.refusals import refusal
from testkit.trees import WORKSPACE, Trees, subnamespace_json

pytest_plugins = ["testkit.fixtures"]
pytestmark = pytest.mark.early

Json = dict[str, Any]
OURS: Json = {"images": {"allowed": ["registry[.]example[.]com/.*", "busybox"]}}


@pytest_asyncio.fixture
async def alice(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """The owner, with a certificate of her own."""
    async with as_person(tenancy, tmp_path, "alice") as person:
        yield person


def pod(image: str = "busybox", **spec: object) -> Json:
    """Return a pod of one container, whose spec may be given otherwise."""
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "web", "image": image}], **spec}}


async def test_a_rule_of_the_tenant_refuses_a_pod_and_says_why(
    api: Api, alice: Api, operator: Operator, name: str
) -> None:
    """E15: which rule, of whom, and what would pass; also while the operator is down."""
    await api.make_tenant(name, rules=OURS)
    await in_force(alice, name)
    await operator.stop()
    with pytest.raises(Forbidden) as refused:
        await alice.create(PODS, pod("evil.example/x"), name)
    assert (
        f"container 'web' has the image 'evil.example/x' (rule images.allowed of Tenant '{name}'):"
        " must match one of registry[.]example[.]com/.*, busybox" in str(refused.value)
    )
    await alice.create(PODS, pod("registry.example.com/x"), name)


@pytest.mark.usefixtures("operator")
async def test_what_is_refused_can_be_read(api: Api, alice: Api, name: str) -> None:
    """E15: the merged rules are readable by the tenant, and written only by Tenantry."""
    await api.make_tenant(name, rules=OURS)
    found = await alice.get(TenancyRules.resource, NAME, name)
    assert found["spec"]["enforce"]["patterns"]["images.allowed"][0]["source"] == f"Tenant '{name}'"
    with pytest.raises(Forbidden):
        await alice.patch(TenancyRules.resource, NAME, {"spec": {"enforce": None}}, name)
    read = PolicyParameters.resource
    for forbidden in (
        alice.patch(read, "tenantry-rules", {"metadata": {"annotations": {f"{PREFIX}refused": ""}}}, name),
        alice.create(read, {"metadata": {"name": "tenantry-rules-warn"}}, name),
        alice.client.delete(read, name, "tenantry-rules"),
        alice.client.request("DELETE", wire.path(read, name)),
    ):
        with pytest.raises(Forbidden):
            await forbidden


@pytest.mark.usefixtures("operator")
async def test_tenants_without_rules_of_their_own_share_one_object(api: Api, alice: Api, name: str) -> None:
    """E15: what all tenants have costs none of them a write, holds for each, and can be read by all."""

    async def shares() -> bool:
        # The API server may learn of the object's end before it learns of the namespace's label.
        return not await refusal(alice, PODS, pod("evil.example/x"), name)

    await api.make_tenant(name)
    assert await api.find(TenancyRules.resource, NAME, name) is None
    shared = await until(
        # The first tenant of a cluster may be ready before they are.
        lambda: alice.find(TenancyRules.resource, NAME, marks.SYSTEM_NAMESPACE),
        "there are rules of all",
    )
    assert shared["spec"]["enforce"]["refused"]["scheduling.nodeName"] == "Tenantry's standard"
    await until(shares, "its owner has rights, and it shares the rules of all")
    await api.patch(Tenant.resource, name, {"spec": {"rules": OURS}})

    async def own() -> bool:
        return "rule images.allowed" in await refusal(alice, PODS, pod("evil.example/x"), name)

    await until(own, "the tenant's own rules are in force")
    await api.patch(Tenant.resource, name, {"spec": {"rules": None}})

    async def gone() -> bool:
        return await api.find(TenancyRules.resource, NAME, name) is None

    await until(gone, "its own object is gone")

    await until(shares, "it shares the rules of all again")


@pytest.mark.usefixtures("operator")
async def test_a_changed_rule_comes_down_the_tree(api: Api, alice: Api, name: str) -> None:
    """E15: what a parent decides holds for everything below, at once."""
    await api.make_tenant(name)
    child = await Trees(api).make(name, "web", {**WORKSPACE, "rules": {"priorityClasses": {"allowed": []}}})
    grandchild = await Trees(api).make(child, "front")
    await api.patch(Tenant.resource, name, {"spec": {"rules": OURS}})

    async def so() -> bool:
        spec = (await api.get(TenancyRules.resource, NAME, grandchild))["spec"]["enforce"]
        return "images.allowed" in spec.get("patterns", {}) and "priorityClasses.allowed" in spec["allowed"]

    await until(so, "the grandchild has the rules of both levels")
    await in_force(alice, grandchild)
    with pytest.raises(Forbidden, match=r"images\.allowed of Tenant"):
        await alice.create(PODS, pod("evil.example/x"), grandchild)


async def test_no_pod_looks_for_those_of_other_tenants_or_keeps_them_away(
    api: Api, alice: Api, operator: Operator, name: str
) -> None:
    """H06, E15: where a pod runs whose anti-affinity is to all namespaces, the scheduler places no other pods."""
    await api.make_tenant(name)
    own = (await api.get(Namespace.resource, name))["metadata"]["labels"][marks.ZONE]
    await operator.stop()

    def near(kind: str, field: str, **reach: object) -> Json:
        term: Json = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, **reach}
        wished: Json = {"weight": 1, "podAffinityTerm": term}
        return pod(affinity={kind: {field: [term if field.startswith("required") else wished]}})

    ways = [
        (kind, f"{field}DuringSchedulingIgnoredDuringExecution")
        for kind in ("podAffinity", "podAntiAffinity")
        for field in ("required", "preferred")
    ]
    wide: list[Json] = [
        {"namespaceSelector": {}},
        {"namespaceSelector": {"matchExpressions": [{"key": marks.ZONE, "operator": "Exists"}]}},
        {"namespaceSelector": {"matchLabels": {marks.ZONE: "another"}}},
        {"namespaces": [name, "kube-system"]},
        {"namespaces": ["kube-system"], "namespaceSelector": {"matchLabels": {marks.ZONE: own}}},
    ]
    ours: list[Json] = [{}, {"namespaces": [name]}, {"namespaceSelector": {"matchLabels": {marks.ZONE: own}}}]
    for kind, field in ways:
        for reach in wide:
            told = await refusal(alice, PODS, near(kind, field, **reach), name)
            assert (
                "pod has affinity or anti-affinity to pods of other tenants (rule scheduling.otherTenants of Tenantry's"
                " standard): leave out namespaces and namespaceSelector"
            ) in told
        for reach in ours:
            assert not await refusal(alice, PODS, near(kind, field, **reach), name)


async def test_no_pod_has_the_clusters_own_priority(api: Api, alice: Api, operator: Operator, name: str) -> None:
    """H06, E15: where nodes are full, it would preempt all other pods; an administrator may allow it."""
    await api.make_tenant(name, rules=OURS)
    await api.make_tenant(f"{name}-trusted", rules={**OURS, "priorityClasses": {"system": "Allow"}})
    await in_force(alice, name)
    await in_force(alice, f"{name}-trusted")
    await operator.stop()
    for priority in ("system-cluster-critical", "system-node-critical"):
        critical = pod(priorityClassName=priority)
        assert (
            "pod has a PriorityClass of the cluster's own, before which all others give way (rule"
            " priorityClasses.system of Tenantry's standard): leave out priorityClassName"
        ) in await refusal(alice, PODS, critical, name)
        assert not await refusal(alice, PODS, critical, f"{name}-trusted")


async def test_labels_and_annotations_of_namespaces_go_by_rules(
    api: Api, alice: Api, operator: Operator, name: str
) -> None:
    """E15: what Subnamespaces give theirs, by patterns of each level; also while the operator is down."""
    known = {"allowed": ["team", "env", "cost.example/*"]}
    rules = {"namespaces": {"labels": ["team", "env", "cost[.]example/[a-z]+"], "annotations": []}}
    await api.make_tenant(name, rules=rules, namespaces={"labels": known, "annotations": known})
    narrower = {"namespaces": {"labels": ["team|env"]}}
    child = await Trees(api).make(name, "web", {**WORKSPACE, "labels": {"cost.example/a": "1"}, "rules": narrower})
    await Trees(api).open(name, "web")
    await operator.stop()

    def asks(field: str, *keys: str) -> Json:
        return subnamespace_json("front", {**WORKSPACE, field: dict.fromkeys(keys, "1")})

    async def told(value: Json, namespace: str, patch: str = "") -> str:
        return await refusal(alice, Subnamespace.resource, value, namespace, patch=patch)

    of_tenant = f"of Tenant '{name}'): must match one of team, env, cost[.]example/[a-z]+"
    for field, keys in (("labels", ("team", "cost.example/a")), ("labels", (f"{name}.tenantry.dev/x",))):
        assert not await told(asks(field, *keys), name)
    foreign = await told(asks("labels", "team", "cost.example/1", "a.example/b"), name)
    named = ("a.example/b", "cost.example/1") if versions.IS_WEBHOOK else ("a.example/b",)
    start = "subnamespace 'front' gives its namespace the label"
    assert any(f"{start} {key!r} (rule namespaces.labels {of_tenant}" in foreign for key in named)
    assert sum(f"label {key!r}" in foreign for key in ("a.example/b", "cost.example/1")) == 1  # the first alone is told
    assert "the label 'other.tenantry.dev/x' (rule namespaces.labels" in await told(
        asks("labels", "other.tenantry.dev/x"), name
    )
    assert "gives its namespace the annotation 'team' (rule namespaces.annotations" in await told(
        asks("annotations", "team"), name
    )
    # Below, a key must match both levels; what is there is looked at again when it changes.
    assert f"of Subnamespace '{name}/web'): must match one of team|env" in await told(
        asks("labels", "cost.example/a"), child
    )
    assert "label 'a.example/b'" in await told({"spec": {"labels": {"a.example/b": "1"}}}, name, patch="web")
    assert not await told({"spec": {"labels": {"cost.example/b": "1"}}}, name, patch="web")


async def test_labels_that_come_in_behind_admissions_back_are_told(api: Api, operator: Operator, name: str) -> None:
    """E15: of a Subnamespace that was made before there were rules, and has no namespace yet."""
    await api.make_tenant(name, namespaces={"labels": {"allowed": ["team"]}})
    await operator.stop()
    await Trees(api).ask(name, "web", {**WORKSPACE, "labels": {"team": "a"}})
    await api.patch(Tenant.resource, name, {"spec": {"rules": {"namespaces": {"labels": ["env"]}}}})
    await operator.start()
    await Trees(api).condition(name, "web", reasons.READY, holds=False, reason=reasons.NOT_ALLOWED)
    told = await Trees(api).message(name, "web")
    assert f"the label 'team' (rule namespaces.labels of Tenant '{name}'): must match one of env" in told


# -- looser than above ----------------------------------------------------------------------------

ABOVE: Json = {
    "podSecurity": {"level": "Restricted", "sysctls": ["kernel.shm_rmid_forced"]},
    "scheduling": {"nodeName": "Refuse", "nodeSelectors": ["disk", "zone=a"]},
    "storageClasses": {"allowed": ["fast", "slow"]},
    "containers": {"max": {"cpu": "2"}},
    "tokens": {"maxSeconds": 7200},
}
LOOSER: list[tuple[str, Json]] = [
    ("podSecurity.level", {"podSecurity": {"level": "Baseline"}}),
    ("podSecurity.privileged", {"podSecurity": {"privileged": "Allow"}}),
    ("podSecurity.seccomp", {"podSecurity": {"seccomp": "Confined"}}),
    ("podSecurity.sysctls", {"podSecurity": {"sysctls": ["kernel.msgmax"]}}),
    ("scheduling.nodeName", {"scheduling": {"nodeName": "Allow"}}),
    ("scheduling.nodeSelectors", {"scheduling": {"nodeSelectors": ["zone=a", "zone=b"]}}),
    ("storageClasses.allowed", {"storageClasses": {"allowed": ["other"]}}),
    ("storageClasses.default", {"storageClasses": {"default": "other"}}),
    ("containers.max", {"containers": {"max": {"cpu": 3}}}),
    ("tokens.maxSeconds", {"tokens": {"maxSeconds": 7201}}),
]
TIGHTER: Json = {
    "podSecurity": {"level": "Restricted", "privileged": "Refuse", "seccomp": "Required"},
    "scheduling": {"nodeSelectors": ["disk=ssd", "zone=a"]},
    "storageClasses": {"allowed": ["slow"], "default": "slow"},
    "containers": {"max": {"cpu": "1500m", "memory": "1Gi"}},
    "images": {"allowed": [".*"]},
    "tokens": {"maxSeconds": 3600, "secrets": "Refuse"},
}


@pytest.mark.usefixtures("operator")
async def test_a_subnamespace_is_never_looser_than_its_parent(api: Api, alice: Api, name: str) -> None:
    """E15: rules that loosen, or contradict, what is set above are refused, and both places named."""
    await api.make_tenant(name, rules=ABOVE)
    await in_force(alice, name)
    for path, rules in LOOSER:
        with pytest.raises(Forbidden) as refused:
            await alice.create(Subnamespace.resource, subnamespace_json("web", {**WORKSPACE, "rules": rules}), name)
        assert f"spec.rules.{path} must not be looser than what Tenant '{name}' says: " in str(refused.value)
    await alice.create(Subnamespace.resource, subnamespace_json("web", {**WORKSPACE, "rules": TIGHTER}), name)
    child = (await Trees(api).ready(name, "web")).status.namespace
    # What is above a child is known to the API server by the child's own rules; before, nothing is.
    await in_force(alice, child)
    larger = subnamespace_json("front", {**WORKSPACE, "rules": {"containers": {"max": {"cpu": 2}}}})
    with pytest.raises(Forbidden, match=rf"Subnamespace '{name}/web' says: must be at most 1500m"):
        await alice.create(Subnamespace.resource, larger, child)
    # What is only warned of loosens nothing.
    milder: Json = {"podSecurity": {"action": "Warn", "level": "Baseline"}}
    await alice.create(Subnamespace.resource, subnamespace_json("front", {**WORKSPACE, "rules": milder}), child)
    await Trees(api).ready(child, "front")


@pytest.mark.usefixtures("operator")
async def test_the_standard_restricted_holds_for_a_tenant_and_below(api: Api, alice: Api, name: str) -> None:
    """E15: a complete set of rules for strangers by one field; a Subnamespace may name it too, and not loosen it."""
    toleration = {"key": "example.com/gpu", "operator": "Exists"}

    async def told(namespace: str) -> str:
        return await refusal(alice, PODS, pod(tolerations=[toleration], nodeSelector={"disk": "a"}), namespace)

    await api.make_tenant(name, rules={"standard": "Restricted"})
    await in_force(alice, name)
    refused = await told(name)
    for rule in ("podSecurity.runAsRoot", "scheduling.tolerations", "scheduling.nodeSelectors"):
        assert f"(rule {rule} of Tenantry's standard Restricted in Tenant '{name}')" in refused, refused
    looser = subnamespace_json("web", {**WORKSPACE, "rules": {"standard": "Baseline"}})
    assert (
        f"spec.rules.standard must not be looser than what Tenantry's standard Restricted in Tenant '{name}' says: must"
        " be Restricted or tighter"
    ) in await refusal(alice, Subnamespace.resource, looser, name)

    await api.patch(Tenant.resource, name, {"spec": {"rules": {"standard": "Baseline"}}})

    async def opened() -> bool:
        return not await told(name)

    await until(opened, "an administrator has loosened the standard")
    tighter = subnamespace_json("web", {**WORKSPACE, "rules": {"standard": "Restricted"}})
    await alice.create(Subnamespace.resource, tighter, name)
    child = (await Trees(api).ready(name, "web")).status.namespace
    await in_force(alice, child)
    assert (
        f"(rule scheduling.tolerations of Tenantry's standard Restricted in Subnamespace '{name}/web')"
        in await told(child)
    )


@pytest.mark.usefixtures("operator")
async def test_a_list_of_classes_has_the_default_from_above(api: Api, alice: Api, name: str) -> None:
    """E15: otherwise each claim that names no class would get one that is refused; both places are named."""
    await api.make_tenant(name, rules={"storageClasses": {"default": "fast"}})

    async def told(**classes: object) -> str:
        spec = {**WORKSPACE, "rules": {"storageClasses": classes}}
        return await refusal(alice, Subnamespace.resource, subnamespace_json("web", spec), name)

    async def refused() -> str:
        return await told(allowed=["slow"])

    assert (
        f"spec.rules.storageClasses.allowed must have 'fast', which is storageClasses.default of Tenant '{name}', or"
        " spec.rules.storageClasses.default must be one of it"
    ) in await until(refused, "the rules above are in force")
    assert not await told(allowed=["slow"], default="slow")
    assert not await told(allowed=["slow", "fast"])
    assert not await told(allowed=["slow"], action="Warn")


@pytest.mark.usefixtures("operator")
async def test_a_tenant_is_never_looser_than_the_defaults(api: Api, name: str) -> None:
    """E15: it may decide what is only the standard, and not loosen what TenancyDefaults say."""
    await api.make_tenant(name, rules={"podSecurity": {"level": "Privileged"}})
    await api.make_tenant(f"{name}-3")
    defaults: Json = {"metadata": {"name": "default"}, "spec": {"rules": {"podSecurity": {"level": "Baseline"}}}}
    await api.create(TenancyDefaults.resource, defaults)
    try:

        async def so() -> bool:
            spec = (await api.get(TenancyRules.resource, NAME, marks.SYSTEM_NAMESPACE))["spec"]["enforce"]
            return "TenancyDefaults" in spec["chosen"]["podSecurity.level"]["source"]

        await until(so, "the defaults are in force")
        loose = tenant_json(f"{name}-2", rules={"podSecurity": {"level": "Privileged"}})

        async def refused() -> str:
            try:
                await api.create(Tenant.resource, loose)
            except Forbidden as error:
                return str(error)
            await api.delete(Tenant.resource, f"{name}-2")
            return ""

        told = await until(refused, "what is looser is refused")
        assert "must not be looser than what TenancyDefaults 'default' says: must be Baseline or tighter" in told

        async def tightened() -> bool:
            spec = (await api.get(TenancyRules.resource, NAME, name))["spec"]["enforce"]
            return "podSecurity.privileged" in spec["refused"]

        await until(tightened, "what was there already is tightened")
    finally:
        await api.delete(TenancyDefaults.resource, "default")

        async def standard() -> bool:
            told = await refusal(api, PODS, pod(hostNetwork=True), f"{name}-3")
            return "podSecurity.hostNamespaces of Tenantry's standard" in told

        # The next tenant has the common rules, too.
        await until(standard, "the defaults are no longer in force")


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("pattern", ["a[", "a)|(b", "\\Qa", "(?<x"])
async def test_patterns_that_do_not_parse_are_refused(api: Api, name: str, pattern: str) -> None:
    """E15: they are RE2, alone and as the API server uses them."""
    with pytest.raises(Invalid, match="regular expressions in the syntax of RE2"):
        await api.create(Tenant.resource, tenant_json(name, rules={"images": {"allowed": [pattern]}}))


# -- what is not refused, and what is looked at again ---------------------------------------------


@pytest.mark.usefixtures("operator")
async def test_warnings_and_audit_do_not_refuse(api: Api, alice: Api, name: str) -> None:
    """E15: Warn tells everything that is wrong and lets it pass; the enforced standard stays."""
    warn: Json = {
        "podSecurity": {"action": "Warn", "level": "Restricted"},
        "images": {"action": "Audit", **OURS["images"]},
    }
    await api.make_tenant(name, rules=warn)

    async def warned() -> str:
        body = msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", **pod("evil.example/x")})
        path = f"/api/v1/namespaces/{name}/pods"
        async with alice.client.open("POST", path, query={"dryRun": "All"}, body=body) as response:
            return " ".join(response.headers.getall("Warning", []))

    async def enforced() -> bool:
        return "podSecurity.hostNamespaces" in await refusal(alice, PODS, pod(hostNetwork=True), name)

    await until(enforced, "the standard is in force, for one who has rights")
    told = await until(warned, "the rules warn")
    for rule in ("runAsRoot", "privilegeEscalation", "defaultCapabilities", "seccompUnset"):
        assert f"podSecurity.{rule} of Tenant '{name}'" in told
    assert "images.allowed" not in told
    with pytest.raises(Forbidden, match=r"podSecurity\.hostNamespaces of Tenantry's standard"):
        await alice.create(PODS, pod(hostNetwork=True), name)


@pytest.mark.usefixtures("operator")
async def test_what_runs_is_looked_at_when_its_spec_changes(api: Api, alice: Api, name: str) -> None:
    """E15: by an update, an ephemeral container or a resize; labels of what was allowed once may change."""
    await api.make_tenant(name, rules={**OURS, "containers": {"max": {"memory": "1Gi"}}})
    limited: Json = {"limits": {"memory": "64Mi"}, "requests": {"memory": "64Mi"}}
    await in_force(alice, name)
    web: Json = {"name": "web", "image": "busybox", "resources": limited}
    await alice.create(PODS, {"metadata": {"name": "p"}, "spec": {"containers": [web]}}, name)
    with pytest.raises(Forbidden, match="has the image 'evil'"):
        await merged(alice, f"{name}/pods/p", {"spec": {"containers": [{"name": "web", "image": "evil"}]}})
    debug = {"name": "debug", "image": "busybox", "securityContext": {"privileged": True}}
    with pytest.raises(Forbidden, match=r"container 'debug' is privileged"):
        await merged(alice, f"{name}/pods/p/ephemeralcontainers", {"spec": {"ephemeralContainers": [debug]}})
    plain = {"name": "debug", "image": "busybox"}
    await merged(alice, f"{name}/pods/p/ephemeralcontainers", {"spec": {"ephemeralContainers": [plain]}})
    grown = {"name": "web", "resources": {"limits": {"memory": "2Gi"}, "requests": {"memory": "64Mi"}}}
    with pytest.raises(Forbidden, match="container 'web' may use too much memory"):
        await merged(alice, f"{name}/pods/p/resize", {"spec": {"containers": [grown]}})
    less = {"name": "web", "resources": {"limits": {"memory": "512Mi"}, "requests": {"memory": "64Mi"}}}
    await merged(alice, f"{name}/pods/p/resize", {"spec": {"containers": [less]}})
    await api.patch(Tenant.resource, name, {"spec": {"rules": {"images": {"allowed": ["other"]}}}})

    async def so() -> bool:
        return "rule images.allowed" in await refusal(alice, PODS, pod("busybox"), name)

    await until(so, "the new rules are in force")
    await alice.patch(PODS, "p", {"metadata": {"labels": {"a": "b"}}}, name)


async def in_force(person: Api, namespace: str) -> None:
    """Wait until the API server goes by the rules: the policies may be a second old."""

    async def so() -> bool:
        # Who has no rights yet is refused, too.
        return "(rule " in await refusal(person, PODS, pod("evil.example/x"), namespace)

    await until(so, "the rules are in force")


async def merged(person: Api, path: str, patch: Json) -> None:
    """Merge a patch in which containers are known by their names."""
    await person.client.request(
        "PATCH",
        f"/api/v1/namespaces/{path}",
        body=msgspec.json.encode(patch),
        content_type="application/strategic-merge-patch+json",
    )


async def test_a_policy_that_does_not_compile_is_not_installed(api: Api) -> None:
    """Issue 5, bad input: the installation says so, and the policy that was there stays."""
    policy = next(
        value
        for value in manifests.foundation(manifests.LOCAL_USER)
        if value["metadata"]["name"] == "tenantry-rules-pods" and value["kind"] == "ValidatingAdmissionPolicy"
    )
    resource = resource_of(policy)
    before = await api.get(resource, "tenantry-rules-pods")
    broken = {**policy, "spec": {**policy["spec"], "validations": [{"expression": "variables.problem == nothing"}]}}
    with pytest.raises(Invalid, match="undeclared reference to 'nothing'"):
        await apply.apply(api.client, [broken])
    assert (await api.get(resource, "tenantry-rules-pods"))["spec"] == before["spec"]
