"""What the API server says to wrong tenants (the field and the fix, nothing half-made), and that good ones pass."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenantry.api import reasons
from tenantry.api.errors import ApiError, BadRequest, Invalid
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.engine.conditions import find
from tenantry.kube import wire
from tenantry.world import quota
from tenantry.world.rulechecks import is_pattern
from testkit.api import CRDS, Api, tenant_json, until
from testkit.installation import without_repairs
from testkit.operators import Operator

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
ALICE: Json = {"kind": "User", "name": "alice"}


async def _dry(api: Api, value: Json) -> Json:
    """Ask whether the API server would take a tenant; unknown fields are errors, as kubectl asks for."""
    body = msgspec.json.encode({"apiVersion": "tenantry.dev/v1alpha1", "kind": "Tenant", **value})
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    path = wire.path(Tenant.resource)
    return msgspec.json.decode(await api.client.request("POST", path, query=query, body=body))


NAMES = [
    ("Acme", "lowercase RFC 1123|must be a DNS label"),
    ("a.b", "metadata.name must be a DNS label"),
    ("a" * 64, "metadata.name must be a DNS label"),
    ("default", "must not be default nor begin with kube- or tenantry-"),
    ("kube-system", "choose another name"),
    ("tenantry-system", "choose another name"),
    ("", "name or generateName is required"),
]


@pytest.mark.parametrize(("wrong", "message"), NAMES)
async def test_a_name_that_cannot_be_a_namespaces_is_refused(api: Api, wrong: str, message: str) -> None:
    """E01: with the rule that it breaks."""
    with pytest.raises(Invalid, match=message):
        await _dry(api, tenant_json(wrong))


SPECS: list[tuple[Json, list[str]]] = [
    ({"owners": []}, ["spec.owners", "at least 1"]),
    ({"owners": None}, ["spec.owners", "Required"]),
    ({"owners": [{**ALICE, "name": ""}]}, ["spec.owners[0].name", "at least 1"]),
    ({"owners": [{"kind": "User"}]}, ["spec.owners[0].name", "Required"]),
    ({"owners": [{"kind": "Robot", "name": "r"}]}, ["spec.owners[0].kind", "Unsupported value", "ServiceAccount"]),
    ({"owners": [{**ALICE, "name": "system:admin"}]}, ["spec.owners[0].name", "must not begin with system:"]),
    ({"owners": [{"kind": "Group", "name": "system:masters"}]}, ["spec.owners[0].name", "must not begin with system:"]),
    ({"owners": [{**ALICE, "namespace": "x"}]}, ["spec.owners[0].namespace", "for a ServiceAccount, and for nothing"]),
    ({"owners": [{"kind": "ServiceAccount", "name": "r"}]}, ["spec.owners[0].namespace", "must name a namespace"]),
    (
        {"owners": [{"kind": "ServiceAccount", "name": "system:x", "namespace": "ci"}]},
        ["spec.owners[0].name", "must be"],
    ),
    ({"owners": [ALICE] * 65}, ["spec.owners", "64"]),
    ({"quota": {"hard": {"hugepages-2Mi": 1, "requests.hugepages-2Mi": 1}}}, ["spec.quota.hard", "must not have both"]),
    ({"containerDefaults": {"requests": {"cpus": 2}}}, ["spec.containerDefaults.requests", "as in cpu, memory"]),
    ({"quota": {"hard": {"cpu": "many"}}}, ["spec.quota.hard[cpu]", "must be a quantity that is not negative, as in"]),
    ({"quota": {"hard": {"cpu": "-1"}}}, ["spec.quota.hard[cpu]", "not negative"]),
    ({"quota": {"hard": {"cpu": -1}}}, ["spec.quota.hard[cpu]", "not negative"]),
    ({"quota": {"hard": {"cpu": 1.5}}}, ["spec.quota.hard.cpu"]),
    ({"quota": {"hard": {"cpu": ""}}}, ["spec.quota.hard[cpu]", "as in 500m"]),
    ({"quota": {"hard": {"cpu": "9" * 65}}}, ["spec.quota.hard.cpu"]),
    ({"quota": {"hard": {"cores": 1}}}, ["spec.quota.hard", "as in cpu, limits.memory"]),
    ({"quota": {"hard": {"example.com/gpu": 1}}}, ["spec.quota.hard", "requests.example.com/gpu"]),
    ({"quota": {"hard": {"bandwidth": 1}}}, ["spec.quota.hard", "must have only keys"]),
    ({"quota": {"hard": {"cpu": 1, "requests.cpu": 2}}}, ["spec.quota.hard", "must not have both a key and the same"]),
    ({"quota": {"hard": {f"count/a{n}": 1 for n in range(65)}}}, ["spec.quota.hard", "64"]),
    ({"containerDefaults": {"requests": {"cpu": "-1m"}}}, ["spec.containerDefaults.requests[cpu]", "not negative"]),
    ({"isolation": {"network": "Closed"}}, ["spec.isolation.network", "Unsupported value", "Isolated"]),
    ({"clusterNetworkPolicy": True}, ["spec.clusterNetworkPolicy"]),
    ({"suspended": "yes"}, ["spec.suspended", "boolean"]),
    ({"namespaces": {"namePattern": "a" * 257}}, ["spec.namespaces.namePattern", "256"]),
]


@pytest.mark.parametrize(("spec", "words"), SPECS)
async def test_a_wrong_spec_is_refused_with_its_field_and_the_fix(
    api: Api, name: str, spec: Json, words: list[str]
) -> None:
    """E01, B03: before anything is made."""
    with pytest.raises(Invalid) as caught:
        await _dry(api, tenant_json(name, **spec))
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


PATTERNS = (
    *("(", ")", "[", "a)|(b", "*", "a**", "a{2,1}", "a{1001}", "[b-a]", "\\", "(?P<n>", "(?<n>a)", "(?P<n>a)(?P<n>b)"),
    *("(?=a)", "(?!a).*", "(?<=a)b", "(?<!a)b", r"(a)\1", "(?P<n>a)(?P=n)", "a++", "(?>a)", "(?#c)a", "(?(1)a|b)"),
    *(
        r"a\Z",
        r"a\z",
        r"\Aa",
        r"\pL",
        r"\p{Greek}",
        r"\p{Nope}",
        r"\Qa.b\E",
        r"\u0061",
        r"\x61",
        r"\N{DIGIT ONE}",
        "(?i)a",
    ),
    *(
        "(?x) a",
        "(?a)a",
        "(?u)a",
        "(?U)a+",
        "(?s:.)",
        "",
        "a|",
        "team-[a-z]+",
        "^a$",
        r"\d{2}",
        "[[:alpha:]]+",
        "[]a]",
        "{",
        "a{,2}",
    ),
)


async def test_the_api_server_and_the_commands_take_the_same_patterns_of_names(api: Api, name: str) -> None:
    """E03, X07: RE2's, which the operator can compile; Python's own are refused."""

    async def is_taken(pattern: str) -> bool:
        try:
            await _dry(api, tenant_json(name, namespaces={"namePattern": pattern}))
        except Invalid as error:
            assert "spec.namespaces.namePattern" in str(error)  # noqa: PT017 - the others are taken
            return False
        return True

    verdicts = {pattern: await is_taken(pattern) for pattern in PATTERNS}
    assert {pattern: is_pattern(pattern) for pattern in PATTERNS} == verdicts
    assert not any(verdicts[each] for each in ("(", "a)|(b", "(?!a).*", r"(a)\1"))
    assert verdicts["team-[a-z]+"]


async def test_an_unknown_field_is_named(api: Api, name: str) -> None:
    """E01: a typo is not a wish that is quietly dropped."""
    with pytest.raises(BadRequest, match=r'unknown field "spec\.onwers"'):
        await _dry(api, tenant_json(name, onwers=[ALICE]))


async def test_a_tenant_without_a_spec_is_refused(api: Api, name: str) -> None:
    with pytest.raises(Invalid, match="spec: Required value"):
        await _dry(api, {"metadata": {"name": name}})


GOOD: list[Json] = [
    {},
    {"owners": [ALICE, {"kind": "Group", "name": "devs"}, {"kind": "ServiceAccount", "name": "r", "namespace": "ci"}]},
    {"quota": {"hard": {"cpu": 4, "memory": "8Gi", "pods": "10"}}},
    {"quota": {"hard": {"cpu": "1e3", "requests.storage": "1.5Ti", "count/deployments.apps": 0}}},
    {"quota": {"hard": {"requests.example.com/gpu": 2, "hugepages-2Mi": "4Mi", "services.nodeports": 0}}},
    {"quota": {"hard": {"gold.storageclass.storage.k8s.io/requests.storage": "1Gi"}}},
    {"quota": {"hard": {f"count/a{n}.example.com": 1 for n in range(64)}}},
    {"quota": {}, "containerDefaults": {"requests": {"cpu": "10m"}, "limits": {"cpu": 1}}},
    {"isolation": {"network": "Open"}, "clusterNetworkPolicy": "Enabled", "suspended": True},
    {"isolation": {}},
]


@pytest.mark.parametrize("spec", GOOD)
async def test_a_good_spec_is_accepted_with_safe_defaults(api: Api, name: str, spec: Json) -> None:
    """E01: what is not said is the safe choice for tenants that are not trusted; and we can read it."""
    stored = await _dry(api, tenant_json(name, **spec))
    tenant = msgspec.convert(stored, Tenant)
    assert tenant.spec.isolation.network == spec.get("isolation", {}).get("network", "Isolated")
    assert tenant.spec.suspended is spec.get("suspended", False)
    assert tenant.spec.cluster_network_policy == spec.get("clusterNetworkPolicy", "Disabled")


async def test_the_server_and_we_agree_on_quota_keys(api: Api, name: str) -> None:
    """E09: what the schema lets through, our own code takes, and a ResourceQuota takes as we spell it."""
    hard = {key: "1" for spec in GOOD for key in spec.get("quota", {}).get("hard", {})}
    await _dry(api, tenant_json(name, quota={"hard": dict(list(hard.items())[-60:])}))
    value = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q"},
        "spec": {"hard": quota.normal(hard)},
    }
    path = wire.path(ResourceQuota.resource, "default")
    await api.client.request("POST", path, query={"dryRun": "All"}, body=msgspec.json.encode(value))


# What only a look at the whole tells: accepted by the schema, refused by the controller or by Kubernetes itself.
LATE: list[tuple[Json, str]] = [
    ({"quota": {"hard": {"pods": "500m"}}}, "must be an integer"),
    ({"quota": {"hard": {"cpu": "1000E"}}}, "larger than Kubernetes counts"),
    ({"containerDefaults": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}}, "must not be more"),
]


@pytest.mark.parametrize(("spec", "words"), LATE)
async def test_what_the_schema_cannot_see_is_a_condition_that_resolves_once_corrected(
    api: Api, operator: Operator, name: str, spec: Json, words: str
) -> None:
    """E01, B03: an incomplete tenant admits no user, and a corrected one becomes ready."""
    await api.create(Tenant.resource, tenant_json(name, **spec))
    tenant = await api.condition(name, reasons.STALLED, holds=True, reason=reasons.INVALID_SPEC)
    stalled = find(tenant.status.conditions, reasons.STALLED)
    assert stalled is not None
    assert words in stalled.message
    await api.patch(Tenant.resource, name, {"spec": {"quota": {"hard": None}, "containerDefaults": None}})
    await api.ready(name)
    assert operator.is_running


async def test_a_tenant_that_we_cannot_read_does_not_stop_the_others(api: Api, operator: Operator, name: str) -> None:
    """E01: one bad tenant never delays others, not even one that an older or newer schema let in."""
    path = wire.path(Tenant.resource, name=f"{name}-odd")
    odd = tenant_json(f"{name}-odd")
    await api.create(Tenant.resource, odd)
    await api.ready(f"{name}-odd")
    crd = wire.path(CRDS, name=Tenant.resource.full_name)
    definition: Json = msgspec.json.decode(await api.client.request("GET", crd))
    async with without_repairs(api.client):
        network = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        network["isolation"]["properties"]["network"]["enum"].append("FromTheFuture")
        # As before the API server looked at patterns.
        del network["namespaces"]["properties"]["namePattern"]["x-kubernetes-validations"]
        await api.client.request("PUT", crd, body=msgspec.json.encode(definition))
        await _patched_once_served(api, path)
        await api.make_tenant(f"{name}-good", namespaces={"namePattern": "(?!x).*"})
        await api.patch(Tenant.resource, f"{name}-odd", {"spec": {"isolation": {"network": "Open"}}})
        await api.ready(f"{name}-odd")
        await api.client.merge_patch(
            Tenant.resource, "", f"{name}-odd", {"spec": {"isolation": {"network": "FromTheFuture"}}}
        )
        await api.delete(Tenant.resource, f"{name}-odd")
        await api.gone(Namespace.resource, f"{name}-odd")
        await api.make_tenant(f"{name}-odd")
    # The operator restores the schema.
    odd = tenant_json(f"{name}-new", isolation={"network": "FromTheFuture"})

    async def is_as_before() -> bool:
        try:
            await _dry(api, odd)
        except Invalid:
            return True
        return False

    await until(is_as_before, "the schema of all tests is served again")
    await api.patch(Tenant.resource, f"{name}-good", {"spec": {"isolation": {"network": "Open"}}})
    await api.ready(f"{name}-good")
    await api.create(
        Subnamespace.resource,
        {"metadata": {"name": "new"}, "spec": {"mode": "Workspace", "owners": [ALICE]}},
        f"{name}-good",
    )

    async def is_told() -> bool:
        conditions = (
            (await api.get(Subnamespace.resource, "new", f"{name}-good")).get("status", {}).get("conditions", [])
        )
        return any("is not a regular expression in the syntax of RE2" in each["message"] for each in conditions)

    await until(is_told, "a pattern that is stored is reported")
    assert operator.is_running


async def _patched_once_served(api: Api, path: str) -> None:
    """The API server takes a changed schema into use a moment after it is written."""

    async def so() -> bool:
        try:
            await api.client.request(
                "PATCH",
                path,
                body=b'{"spec":{"isolation":{"network":"FromTheFuture"}}}',
                content_type="application/merge-patch+json",
            )
        except ApiError:
            return False
        return True

    await until(so, "the changed schema is served")
