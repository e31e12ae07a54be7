"""The client's verdict on a tenant is the server's, before the server is asked."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenantry.api.errors import BadRequest, Forbidden, Invalid
from tenantry.api.tenant import Tenant
from tenantry.cli.refusals import problems
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.world.structure import read
from tenantry.world.validation import validate_tenant

Json = dict[str, Any]

ADA: Json = {"kind": "User", "name": "ada"}


def document(name: object = "agreed", **spec: object) -> Json:
    spec.setdefault("owners", [ADA])
    return {
        "apiVersion": "tenantry.dev/v1alpha1",
        "kind": "Tenant",
        "metadata": {"name": name},
        "spec": spec,
    }


def quota(**hard: object) -> Json:
    return document(quota={"hard": {key.replace("__", "/").replace("_", "."): value for key, value in hard.items()}})


def owners(*given: object) -> Json:
    return document(owners=list(given))


def rules(**given: object) -> Json:
    return document(rules=given)


SERVICE_ACCOUNT: Json = {"kind": "ServiceAccount", "name": "ci"}
GOOD: dict[str, Json] = {
    "least": document(),
    "63 characters": document("a" * 63),
    "digits": document("1-2"),
    "kubernetes": document("kubernetes"),
    "kinds of owners": owners(ADA, {"kind": "Group", "name": "devs"}, {**SERVICE_ACCOUNT, "namespace": "tools"}),
    "oidc": owners({"kind": "User", "name": "oidc:ada@example.com"}),
    "253 characters of two bytes": owners({"kind": "User", "name": "ü" * 253}),
    "spaces and umlauts": owners({"kind": "User", "name": "Zoë Müller"}),
    "same owner twice": owners(ADA, ADA),
    "64 owners": owners(*({"kind": "User", "name": f"u{i}"} for i in range(64))),
    "no quota": document(quota={}),
    "patterns of images": rules(images={"allowed": ["registry[.]example[.]com/.*", "(?i)a|b", "x{2}"]}),
    "most of containers": rules(containers={"max": {"cpu": "1.5"}}),
    "cidrs": rules(services={"loadBalancerSourceRanges": ["10.0.0.1/8", "2001:db8::/32", "0.0.0.0/0"]}),
    "cidrs of network policies": document(isolation={"allowedCidrs": ["10.0.0.0/8", "::/0"]}),
    "own cluster": document("a" * 30, isolation={"controlPlane": "Dedicated"}),
    "own nodes": document("a" * 46, isolation={"nodes": "Slice"}),
    "own nodes with a selector": document(
        isolation={"nodes": "Slice", "slice": {"count": 2, "selector": {"matchLabels": {"disk": "ssd"}}}}
    ),
    "default storage class": rules(storageClasses={"default": "fast", "allowed": ["fast"]}),
    "numbers": quota(cpu=4, memory="8Gi", pods="1000"),
    "fraction": quota(cpu="0.5"),
    "point first": quota(cpu=".5"),
    "point last": quota(cpu="5."),
    "plus": quota(cpu="+5"),
    "exponent": quota(cpu="1e3", memory="1E3"),
    "exa": quota(memory="1E"),
    "nano": quota(cpu="1n"),
    "zero": quota(cpu=0, pods="0"),
    "minus zero": quota(cpu="-0"),
    "limits": quota(limits_cpu="4", requests_memory="1Gi"),
    "extended": quota(requests_example_com__gpu=1),
    "object count": quota(**{"count__deployments.apps": 5}),
    "storage class": quota(**{"gold.storageclass.storage.k8s.io__requests.storage": "1Gi"}),
    "hugepages": quota(**{"requests.hugepages-2Mi": "1Gi"}),
    "container defaults": document(containerDefaults={"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}}),
    "open": document(isolation={"network": "Open"}),
    "suspended": document(suspended=True),
    "cluster policy": document(clusterNetworkPolicy="Enabled"),
    "null quota": document(quota=None),
    "null suspended": document(suspended=None),
    "null in the quota": document(quota={"hard": None}),
}
BAD: dict[str, Json] = {
    "64 characters": document("a" * 64),
    "upper case": document("Acme"),
    "point": document("a.b"),
    "hyphen first": document("-a"),
    "hyphen last": document("a-"),
    "default": document("default"),
    "kube-": document("kube-x"),
    "tenantry-": document("tenantry-x"),
    "no name": document(""),
    "number as name": document(5),
    "null name": document(None),
    "no owners": owners(),
    "null owners": document(owners=None),
    "owners a map": document(owners={}),
    "owner a string": owners("ada"),
    "65 owners": owners(*({"kind": "User", "name": f"u{i}"} for i in range(65))),
    "kind unknown": owners({"kind": "Robot", "name": "r"}),
    "kind in lower case": owners({"kind": "user", "name": "ada"}),
    "no kind": owners({"name": "ada"}),
    "owner without name": owners({"kind": "User"}),
    "owner with empty name": owners({"kind": "User", "name": ""}),
    "owner with a number": owners({"kind": "User", "name": 5}),
    "long owner": owners({"kind": "User", "name": "a" * 254}),
    "system user": owners({"kind": "User", "name": "system:admin"}),
    "system group": owners({"kind": "Group", "name": "system:masters"}),
    "tenantry user": owners({"kind": "User", "name": "tenantry:operator"}),
    "service account called system:": owners({**SERVICE_ACCOUNT, "name": "system:x", "namespace": "tools"}),
    "service account with a space": owners({**SERVICE_ACCOUNT, "name": "Foo Bar", "namespace": "tools"}),
    "service account in no namespace's name": owners({**SERVICE_ACCOUNT, "namespace": "Not_DNS"}),
    "unit alone": quota(cpu="E"),
    "hugepages in both spellings": quota(**{"hugepages-2Mi": "1Gi", "requests.hugepages-2Mi": "1Gi"}),
    "container default for no resource": document(containerDefaults={"requests": {"foo bar": "1"}}),
    "container default with requests.": document(containerDefaults={"limits": {"requests.cpu": "1"}}),
    "user with namespace": owners({**ADA, "namespace": "tools"}),
    "service account without namespace": owners(SERVICE_ACCOUNT),
    "service account with empty namespace": owners({**SERVICE_ACCOUNT, "namespace": ""}),
    "long namespace": owners({**SERVICE_ACCOUNT, "namespace": "a" * 64}),
    "unknown owner field": owners({**ADA, "role": "admin"}),
    "unknown field": document(owner=[ADA]),
    "unknown in isolation": document(isolation={"netwrok": "Open"}),
    "unknown in metadata": {**document(), "metadata": {"name": "agreed", "lables": {}}},
    "unknown at the root": {**document(), "specs": {}},
    "label a number": {**document(), "metadata": {"name": "agreed", "labels": {"a": 5}}},
    "no spec": {key: value for key, value in document().items() if key != "spec"},
    "spec a list": {**document(), "spec": []},
    "negative": quota(memory="-1Gi"),
    "negative number": quota(pods=-1),
    "no quantity": quota(cpu="many"),
    "empty quantity": quota(cpu=""),
    "two suffixes": quota(memory="1GiB"),
    "space": quota(memory="1 Gi"),
    "arabic digits": quota(cpu="٤"),
    "float": quota(cpu=4.5),
    "boolean": quota(cpu=True),
    "list": quota(cpu=[1]),
    "pattern without end": rules(images={"allowed": ["a("]}),
    "pattern that only Python knows": rules(images={"allowed": ["(?=a)b"]}),
    "pattern that ends the group": rules(images={"allowed": ["a)(b"]}),
    "star alone": rules(hostnames={"allowed": ["*"]}),
    "pattern of labels": rules(namespaces={"labels": ["["]}),
    "empty pattern": rules(images={"allowed": [""]}),
    "control character": rules(storageClasses={"allowed": ["a\x01"]}),
    "default storage class that is not allowed": rules(storageClasses={"default": "a", "allowed": ["b"]}),
    "most that is no quantity": rules(containers={"max": {"cpu": "many"}}),
    "most that is negative": rules(containers={"max": {"cpu": "-1"}}),
    "most of no resource": rules(containers={"max": {"foo bar": "1"}}),
    "size of no kind": rules(objects={"maxSizes": {"pods": "1Ki"}}),
    "address that is no CIDR": rules(services={"loadBalancerSourceRanges": ["10.0.0.1"]}),
    "CIDR with leading zeros": document(isolation={"allowedCidrs": ["010.0.0.0/8"]}),
    "CIDR with a mask": document(isolation={"allowedCidrs": ["10.0.0.0/255.0.0.0"]}),
    "CIDR of IPv4 in IPv6": document(isolation={"allowedCidrs": ["::ffff:10.0.0.0/104"]}),
    "CIDR too long": document(isolation={"allowedCidrs": ["10.0.0.0/33"]}),
    "own cluster of a long name": document("a" * 31, isolation={"controlPlane": "Dedicated"}),
    "own cluster and own nodes": document(isolation={"controlPlane": "Dedicated", "nodes": "Slice"}),
    "slice without own nodes": document(isolation={"slice": {"count": 2}}),
    "own nodes of a long name": document("a" * 47, isolation={"nodes": "Slice"}),
    "no own nodes": document(isolation={"nodes": "Slice", "slice": {"count": 0}}),
    "own nodes of a negative size": document(isolation={"nodes": "Slice", "slice": {"perNode": {"cpu": "-1"}}}),
    "own nodes with no sum of a resource": document(isolation={"nodes": "Slice", "slice": {"total": {"foo bar": "1"}}}),
    "own nodes with no values": document(
        isolation={
            "nodes": "Slice",
            "slice": {"selector": {"matchExpressions": [{"key": "disk", "operator": "In"}]}},
        }
    ),
    "tokens that live too short": rules(tokens={"maxSeconds": 5}),
    "negative count": document(namespaces={"maxCount": -1}),
    "long quantity": quota(cpu="0" * 65),
    "key unknown": quota(gpu=1),
    "extended without requests": quota(example_com__gpu=1),
    "bandwidth": quota(bandwidth=1),
    "both spellings": quota(cpu=1, requests_cpu=1),
    "65 keys": quota(**{f"count__a{i}": 1 for i in range(65)}),
    "quota a list": document(quota=[]),
    "hard a list": document(quota={"hard": []}),
    "network unknown": document(isolation={"network": "Closed"}),
    "network empty": document(isolation={"network": ""}),
    "suspended a string": document(suspended="yes"),
    "cluster policy unknown": document(clusterNetworkPolicy="On"),
    "default negative": document(containerDefaults={"requests": {"cpu": "-1"}}),
    "default no quantity": document(containerDefaults={"limits": {"cpu": "x"}}),
}
# Here the client knows better: the server would take these, and the operator could not carry them out.
STRICTER: dict[str, Json] = {
    "larger than counted": quota(memory="9223372036854775808"),
    "larger than counted, with an exponent": quota(memory="1e99"),
    "exponent of four digits": quota(cpu="1e1000"),
    "exponent alone": quota(cpu="e5"),
    "exponent alone, less than zero": quota(cpu="-.E+1"),
}
_STRICTER = re.compile(
    r"is larger than Kubernetes counts|'[-+]?\.?[eE][-+]?\d+' is not|'[-+]?[\d.]*[eE][-+]?\d{4,}' is not"
)
"""What is told of these."""


def refused_here(value: Json) -> list[str]:
    tenant, problems = read(value, Tenant)
    return [str(problem) for problem in problems or (validate_tenant(tenant) if tenant else [])]


async def refused_there(client: Client, value: Json) -> str:
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    try:
        await client.request("POST", wire.path(Tenant.resource), query=query, body=msgspec.json.encode(value))
    except (Invalid, BadRequest, Forbidden) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("value", GOOD.values(), ids=GOOD.keys())
async def test_both_take_what_is_good(cli_admin: Client, value: Json) -> None:
    """E15: nothing is refused that the server would take."""
    assert (refused_here(value), await refused_there(cli_admin, value)) == ([], "")


@pytest.mark.parametrize("value", BAD.values(), ids=BAD.keys())
async def test_both_refuse_what_is_bad(cli_admin: Client, value: Json) -> None:
    """E15: what the server would refuse is refused before it is asked."""
    assert refused_here(value)
    said = await refused_there(cli_admin, value)
    assert said
    for problem in problems(said):
        assert problem.path, said
        assert " in body " not in problem.message, said


@pytest.mark.parametrize("value", STRICTER.values(), ids=STRICTER.keys())
async def test_the_client_refuses_what_no_operator_could_make(cli_admin: Client, value: Json) -> None:
    """E15: the known differences, and only in this direction."""
    assert refused_here(value)
    assert not await refused_there(cli_admin, value)


names = st.one_of(
    st.sampled_from(["agreed", "default", "kube-a", "tenantry-a", "kube", "tenantry"]),
    st.text(st.sampled_from("ab-0A."), min_size=1, max_size=5),
    st.integers(60, 66).map(lambda length: "a" * length),
)
one_owner = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["User", "Group", "ServiceAccount", "Other"]),
        "name": st.sampled_from(["ada", "system:x", ""]),
    },
    optional={"namespace": st.sampled_from(["", "tools", "a" * 64])},
)
keys = st.sampled_from(
    ["cpu", "requests.cpu", "limits.cpu", "storage", "pods", "gpu", "example.com/gpu", "requests.example.com/gpu"]
)
quantities = st.one_of(
    st.integers(-3, 10**6),
    st.text(st.sampled_from("0159.+-eEkKMGimn "), max_size=6),
    st.sampled_from(["500m", "8Gi", "1e3", "1e-3", "-1"]),
)


def _random(name: str, owners: list[Json], hard: Json) -> Json:
    return document(name, owners=owners, quota={"hard": hard})


documents = st.builds(_random, names, st.lists(one_owner, max_size=2), st.dictionaries(keys, quantities, max_size=3))


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(value=documents)
async def test_they_agree_on_whatever_comes(cli_admin: Client, value: Json) -> None:
    """E15: the same verdict on random tenants, except for the known differences."""
    here, there = refused_here(value), await refused_there(cli_admin, value)
    if there:
        assert here, there
    else:
        assert all(_STRICTER.search(each) for each in here), here
