"""The client's verdict on a Subnamespace is the server's, before the server is asked."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenantry.api import marks
from tenantry.api.errors import BadRequest, Forbidden, Invalid
from tenantry.api.kubernetes import Namespace
from tenantry.api.subnamespace import Subnamespace
from tenantry.cli.refusals import problems
from tenantry.kube import wire
from tenantry.world.structure import read
from tenantry.world.validation import validate_subnamespace
from testkit.api import Api

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]

ADA: Json = {"kind": "User", "name": "ada"}
FAR = "2127-01-31T18:00:00Z"


def document(name: object = "agreed", **spec: object) -> Json:
    spec.setdefault("mode", "Workspace")
    spec.setdefault("owners", [ADA])
    return {
        "apiVersion": "tenantry.dev/v1alpha1",
        "kind": "Subnamespace",
        "metadata": {"name": name},
        "spec": spec,
    }


def inherits(mode: str = "Workspace", **modes: object) -> Json:
    return document(mode=mode, inheritance=modes)


def others(*names: str, mode: str = "Workspace", how: str = "Copy") -> Json:
    return inherits(mode, others=[{"resource": name, "mode": how} for name in names])


def quota(**hard: object) -> Json:
    return document(quota={"hard": hard})


GOOD: dict[str, Json] = {
    "least": document(),
    "46 characters": document("a" * 46),
    "digits": document("1-2"),
    "reserved for namespaces only": document("kube-x"),
    "no owners where bindings are inherited": document(owners=[], inheritance={"roleBindings": "Sync"}),
    "null owners where bindings are inherited": document(owners=None, inheritance={"roleBindings": "Copy"}),
    "64 owners": document(owners=[{"kind": "User", "name": f"u{i}"} for i in range(64)]),
    "the seven": inherits(
        roles="Sync",
        roleBindings="Sync",
        networkPolicies="Copy",
        limitRanges="None",
        secrets="Sync",
        configMaps="Copy",
        serviceAccounts="Sync",
    ),
    "others": others("widgets.example.com", "deployments.apps"),
    "others in sync": others("widgets.example.com", how="Sync"),
    "subtenant": document(mode="Subtenant"),
    "subtenant with copies": inherits("Subtenant", secrets="Copy", configMaps="Copy", limitRanges="Copy"),
    "subtenant with other copies": others("widgets.example.com", mode="Subtenant"),
    "quota": quota(cpu=2, memory="4Gi", pods="5"),
    "null quota": document(quota=None),
    "subtenant without what runs": others("deployments.apps", mode="Subtenant", how="None"),
    "federated": document(scope="Federated"),
    "labels": document(labels={"acme.tenantry.dev/team": "web"}, annotations={"acme.tenantry.dev/cost": "5"}),
    "long annotation": document(annotations={"acme.tenantry.dev/cost": "a" * 4096}),
    "cascading": document(allowCascadingDeletion=True),
    "expires": document(expiresAt=FAR),
    "expires with an offset": document(expiresAt="2127-01-31T18:00:00+02:00"),
    "expires with a fraction": document(expiresAt="2127-01-31T18:00:00.25Z"),
    "adopts": document(adopt={"namespace": "old-namespace"}),
    "moves": document(adopt={"namespace": "old-namespace", "parent": "old-parent"}),
}
BAD: dict[str, Json] = {
    "47 characters": document("a" * 47),
    "upper case": document("Web"),
    "point": document("a.b"),
    "hyphen last": document("a-"),
    "no name": document(""),
    "no mode": document(mode=None),
    "mode unknown": document(mode="Team"),
    "mode in lower case": document(mode="workspace"),
    "no owners": document(owners=[]),
    "no owners where only roles are inherited": document(owners=[], inheritance={"roles": "Sync"}),
    "subtenant without owners": document(mode="Subtenant", owners=[]),
    "65 owners": document(owners=[{"kind": "User", "name": f"u{i}"} for i in range(65)]),
    "system owner": document(owners=[{"kind": "Group", "name": "system:masters"}]),
    "owner with namespace": document(owners=[{**ADA, "namespace": "x"}]),
    "inheritance unknown": inherits(pods="Copy"),
    "inheritance mode unknown": inherits(roles="Always"),
    "subtenant with roles": inherits("Subtenant", roles="Copy"),
    "subtenant with bindings": inherits("Subtenant", roleBindings="Copy"),
    "subtenant with network policies": inherits("Subtenant", networkPolicies="Copy"),
    "subtenant with service accounts": inherits("Subtenant", serviceAccounts="Copy"),
    "subtenant with synced secrets": inherits("Subtenant", secrets="Sync"),
    "subtenant with synced config maps": inherits("Subtenant", configMaps="Sync"),
    "subtenant with synced limits": inherits("Subtenant", limitRanges="Sync"),
    "subtenant with what runs": others("deployments.apps", mode="Subtenant"),
    "subtenant with jobs": others("cronjobs.batch", mode="Subtenant"),
    "subtenant with other syncs": others("widgets.example.com", mode="Subtenant", how="Sync"),
    **{
        f"never inherited: {name}": others(name)
        for name in (
            "pods",
            "secrets",
            "roles.rbac.authorization.k8s.io",
            "replicasets.apps",
            "tenants.tenantry.dev",
            "x.y.tenantry.dev",
        )
    },
    "other twice": others("widgets.example.com", "widgets.example.com"),
    "other without mode": inherits(others=[{"resource": "widgets.example.com"}]),
    "other empty": others(""),
    "17 others": others(*(f"w{i}.example.com" for i in range(17))),
    "quota negative": quota(cpu="-1"),
    "quota no quantity": quota(cpu="lots"),
    "quota key": quota(cores=1),
    "quota in both spellings": document(quota={"hard": {"cpu": 1, "requests.cpu": 1}}),
    "65 quota keys": quota(**{f"count/a{i}": 1 for i in range(65)}),
    "scope unknown": document(scope="Global"),
    "label a number": document(labels={"a": 5}),
    "65 labels": document(labels={f"a{i}": "" for i in range(65)}),
    "annotation too long": document(annotations={"a": "a" * 4097}),
    "cascading a string": document(allowCascadingDeletion="yes"),
    "expires in words": document(expiresAt="tomorrow"),
    "expires on a day": document(expiresAt="2127-01-31"),
    "expires nowhere": document(expiresAt="2127-01-31T18:00:00"),
    "expires in no month": document(expiresAt="2127-13-31T18:00:00Z"),
    "expires with a space": document(expiresAt="2127-01-31 18:00:00Z"),
    "expires in lower case": document(expiresAt="2127-01-31t18:00:00z"),
    "expires with an offset of 99 minutes": document(expiresAt="2127-01-31T18:00:00+02:99"),
    "expires too long": document(expiresAt=f"2127-01-31T18:00:00.{'0' * 60}Z"),
    "adopts a long name": document(adopt={"namespace": "a" * 64}),
    "moves nothing": document(adopt={"parent": "old-parent"}),
    "adopts an unknown field": document(adopt={"namespace": "x", "uid": "y"}),
    "unknown field": document(owner=[ADA]),
    "no spec": {key: value for key, value in document().items() if key != "spec"},
}
# Only the server can know: it has a clock.
LATER: dict[str, Json] = {"expired": document(expiresAt="2001-01-31T18:00:00Z")}


@pytest_asyncio.fixture(scope="session")
async def core(api: Api) -> AsyncGenerator[str]:
    """A namespace that is a tenant's, as its labels say."""
    name = f"t{uuid.uuid4().hex[:10]}"
    labels = {
        marks.MANAGED_BY: marks.MANAGER,
        marks.KIND: marks.KIND_CORE,
        marks.TENANT: name,
        marks.TENANT_UID: "a-uid",
        f"{name}{marks.TREE_SUFFIX}": "0",
    }
    await api.create(Namespace.resource, {"metadata": {"name": name, "labels": labels}})
    yield name
    await api.delete(Namespace.resource, name)


def refused_here(value: Json) -> list[str]:
    found, wrong = read(value, Subnamespace)
    return [str(problem) for problem in wrong or (validate_subnamespace(found) if found else [])]


async def refused_there(api: Api, namespace: str, value: Json) -> str:
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    path = wire.path(Subnamespace.resource, namespace)
    try:
        await api.client.request("POST", path, query=query, body=msgspec.json.encode(value))
    except (Invalid, BadRequest, Forbidden) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("value", GOOD.values(), ids=GOOD.keys())
async def test_both_take_what_is_good(api: Api, core: str, value: Json) -> None:
    """E04, E05, E06: nothing is refused that the server would take."""
    assert (refused_here(value), await refused_there(api, core, value)) == ([], "")


@pytest.mark.parametrize("value", BAD.values(), ids=BAD.keys())
async def test_both_refuse_what_is_bad(api: Api, core: str, value: Json) -> None:
    """E05, E06, E07, E15: what the server would refuse is refused before it is asked, with the field and the fix."""
    assert refused_here(value)
    said = await refused_there(api, core, value)
    assert said
    for problem in problems(said):
        assert problem.path, said
        assert " in body " not in problem.message, said


@pytest.mark.parametrize("value", LATER.values(), ids=LATER.keys())
async def test_what_only_the_server_knows(api: Api, core: str, value: Json) -> None:
    """X05: the end of a lease is in the future."""
    assert refused_here(value) == []
    assert await refused_there(api, core, value)


modes = st.sampled_from(["None", "Copy", "Sync"])
kinds = st.sampled_from(
    ["roles", "roleBindings", "networkPolicies", "limitRanges", "secrets", "configMaps", "serviceAccounts"]
)
resources = st.sampled_from(["widgets.example.com", "pods", "deployments.apps", "secrets", "x.tenantry.dev", "Pods"])
# The server alone also takes offsets of 24 hours, and of 60 minutes, against RFC 3339.
_offset = r"[+-]([01][0-9]|2[0-35-9]|[3-9][0-9]):([0-57-9][0-9]|6[1-9])"
times = st.one_of(
    st.just(FAR),
    st.from_regex(rf"21[0-9]{{2}}-[0-9]{{2}}-[0-9]{{2}}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(Z|{_offset})", fullmatch=True),
)


@st.composite
def documents(draw: st.DrawFn) -> Json:
    inheritance: Json = draw(st.dictionaries(kinds, modes, max_size=3))
    found = draw(st.dictionaries(resources, modes, max_size=2))
    if found:
        inheritance["others"] = [{"resource": name, "mode": mode} for name, mode in found.items()]
    value = document(
        draw(st.text(st.sampled_from("ab-0A."), min_size=1, max_size=5)),
        mode=draw(st.sampled_from(["Workspace", "Subtenant"])),
        owners=draw(st.lists(st.just(ADA), max_size=1)),
        inheritance=inheritance,
    )
    if draw(st.booleans()):
        value["spec"]["expiresAt"] = draw(times)
    return value


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(value=documents())
async def test_they_agree_on_whatever_comes(api: Api, core: str, value: Json) -> None:
    """E15: the same verdict on random Subnamespaces."""
    said = await refused_there(api, core, value)
    assert bool(refused_here(value)) == bool(said), (refused_here(value), said)
