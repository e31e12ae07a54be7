"""The API server and Python come to the same verdict of Services, claims, Ingresses, Gateways and routes."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from hypothesis import strategies as st

from tenantry.api.errors import Forbidden, Invalid
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import TENANT, TENANT_UID
from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.rules import Rules
from tenantry.api.tenancyrules import NAME, OWN_MARK, TenancyRulesSpec
from tenantry.controllers import tenancyrules
from tenantry.policy.catalog import violations
from tenantry.policy.request import Request
from tenantry.policy.targets.claims import CHOSEN_NODE
from tenantry.world.rules import Layer, effective
from testkit import versions
from testkit.api import Api, until
from testkit.draws import drawn, few, one, some
from testkit.hosts import GATEWAYS, INGRESSES, ROUTES, gateway_api
from testkit.refusals import refusal, tried

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
Some = st.SearchStrategy[Json]

RULEBOOKS, EXAMPLES = 8, 250
# Under random rules alone, once in a hundred times, fewer than half of them come up.
EVERY_RULE: Json = {
    "services": {
        "types": ["ClusterIP"],
        "externalIPs": "Refuse",
        "externalName": "Refuse",
        "externalNames": ["a[.]verdict"],
        "loadBalancerSourceRanges": ["10.0.0.0/8"],
    },
    "storageClasses": {"allowed": ["one"], "existingVolumes": "Refuse"},
    "hostnames": {
        "allowed": ["a[.]verdict"],
        "domain": "verdict",
        "catchAll": "Refuse",
        "ingressClasses": ["public"],
        "gatewayClasses": ["public"],
    },
    "annotations": {"dangerous": "Refuse", "unknown": "Refuse", "known": ["other[.]com/x"]},
}
SERVICES = Resource("", "v1", "services", "Service")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")

# -- rules ----------------------------------------------------------------------------------------

PERMISSION = one("Allow", "Refuse", "Refuse")
PATTERNS = one("a[.]verdict", "(.*[.])?a[.]verdict", "[a-z]+[.].*", "[*].*", ".*")
RULES = some(
    services=some(
        types=few(one("ClusterIP", "NodePort", "LoadBalancer")),
        externalIPs=PERMISSION,
        externalName=PERMISSION,
        externalNames=few(PATTERNS, 2),
        loadBalancerSourceRanges=few(one("10.0.0.0/8", "192.0.2.0/24", "2001:db8::/32", "0.0.0.0/0")),
    ),
    scheduling=some(nodeName=PERMISSION),
    storageClasses=some(allowed=few(one("one", "two", "old")), existingVolumes=PERMISSION),
    hostnames=some(
        allowed=few(PATTERNS, 2),
        domain=one("verdict", "b.verdict"),
        catchAll=PERMISSION,
        ingressClasses=few(one("public", "private"), 2),
        gatewayClasses=few(one("public", "private"), 2),
    ),
    annotations=some(dangerous=PERMISSION, unknown=PERMISSION, known=few(one("example[.]com/.*", "other[.]com/x"), 2)),
)

# -- objects --------------------------------------------------------------------------------------

RANGE = one("10.1.0.0/16", "10.0.0.0/8", "192.0.2.0/25", "192.0.0.0/16", "2001:db8:1::/48", "::/0", "10.2.0.1/16")


def named(spec: Json, annotations: Json | None = None) -> Json:
    """Return an object of a spec."""
    return {"metadata": {"name": "x", "annotations": annotations or {}}, "spec": spec}


ANNOTATIONS: Some = some(
    **{
        "external-dns.alpha.kubernetes.io/hostname": one("a.verdict", "a.verdict, b.a.verdict", "x.t.verdict", "", "*"),
        "nginx.ingress.kubernetes.io/server-snippet": one("x"),
        "nginx.ingress.kubernetes.io/auth-secret": one("mine", "other/theirs", "mine,other/theirs", " a, b ", "a/../b"),
        "nginx.ingress.kubernetes.io/proxy-body-size": one("1m", "1m;", "1m\n", 'a"b', "{", "$1|(a)"),
        "example.com/unknown": one("x"),
        "other.com/x": one("x"),
        "plain": one("x"),
    }
)
SERVICE: Some = st.tuples(
    some(
        type=one("ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer"),
        externalIPs=few(one("192.0.2.1", "192.0.2.2"), 2),
        loadBalancerSourceRanges=few(RANGE, 3),
    ),
    ANNOTATIONS,
).map(lambda both: named({"ports": [{"port": 80}], **both[0]}, both[1]))
BY_NAME: Some = one("other.verdict", "a.verdict", "b.a.verdict", "a.verdict.").map(
    lambda host: named({"type": "ExternalName", "externalName": host})
)

OF_ANY: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
CLAIM: Some = st.builds(
    named,
    some(
        storageClassName=one("one", "two", "other", ""),
        volumeName=one("v", ""),
        selector=st.just({"matchLabels": {"a": "b"}}),
        dataSourceRef=st.just({"kind": "PersistentVolumeClaim", "name": "other"}),
    ).map(lambda spec: {**OF_ANY, **spec}),
    some(**{"volume.beta.kubernetes.io/storage-class": one("old", "two", ""), CHOSEN_NODE: one("n", "")}),
)

HOST = one("a.verdict", "b.verdict", "x.t.verdict", "*.t.verdict", "*.verdict", "t.b.verdict", "*.t.b.verdict", "long")
# No other tenant has hosts there: another policy refuses taken hosts first.
ALIASED = one("a.verdict", "a.verdict, b.verdict", "*.verdicts", "~^x", "A.verdict", " ", "x.t.verdict,")
BACKEND: Json = {"service": {"name": "web", "port": {"number": 80}}}
HTTP: Json = {"paths": [{"path": "/", "pathType": "Prefix", "backend": BACKEND}]}
PATHS: Some = some(host=HOST).map(lambda rule: {**rule, "http": HTTP})
INGRESS: Some = st.builds(
    named,
    st.tuples(
        some(
            defaultBackend=st.just(BACKEND),
            ingressClassName=one("public", "private", "other"),
            tls=few(some(hosts=few(HOST, 2)), 2),
        ),
        few(PATHS),
    ).map(lambda both: {**both[0], "rules": both[1]}),
    some(
        **{
            "nginx.ingress.kubernetes.io/server-alias": ALIASED,
            "konghq.com/host-aliases": ALIASED,
            "kubernetes.io/ingress.class": one("public", "other"),
        }
    ),
)
PARENT: Some = some(namespace=one("infra"), kind=one("Gateway", "Service")).map(lambda parent: {"name": "g", **parent})
ROUTE: Some = some(hostnames=few(HOST, 2), parentRefs=few(PARENT, 2)).map(named)
GATEWAY: Some = st.builds(
    named,
    some(
        gatewayClassName=one("public", "private", "other"),
        listeners=few(some(hostname=HOST, protocol=one("HTTP", "HTTPS", "TLS", "TCP")), 3),
        infrastructure=some(annotations=ANNOTATIONS),
    ),
    ANNOTATIONS,
)
OBJECTS: st.SearchStrategy[tuple[Resource, Json]] = st.one_of(
    st.tuples(st.just(SERVICES), st.one_of(SERVICE, SERVICE, BY_NAME)),
    st.tuples(st.just(CLAIMS), CLAIM),
    st.tuples(st.just(INGRESSES), INGRESS),
    st.tuples(st.just(ROUTES), ROUTE),
    st.tuples(st.just(GATEWAYS), GATEWAY),
)


# -- the verdicts ---------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def gateways(api: Api) -> AsyncGenerator[None]:
    """The kinds of the Gateway API."""
    async with gateway_api(api):
        yield


async def place(api: Api, namespace: str, book: TenancyRulesSpec) -> None:
    """Make a namespace with these rules, and wait until they are in force there."""
    labels = {TENANT_UID: "u", TENANT: "t", OWN_MARK: "own"}
    await api.create(Namespace.resource, {"metadata": {"name": namespace, "labels": labels}})
    for each in tenancyrules.objects(book, ObjectMeta(name=NAME, namespace=namespace)):
        await api.client.create(each)

    async def so() -> bool:
        # "no params found" is what is told before.
        return "params" not in await refusal(api, CLAIMS, named(OF_ANY), namespace)

    await until(so, f"the rules of {namespace} are in force")


@pytest.mark.usefixtures("gateways")
async def test_the_api_server_and_python_agree(api: Api, name: str) -> None:
    """X02, E15: the same verdict and the same words, of random objects under random rules."""
    number = random.randrange(2**32)
    print(f"seed {number}")
    books = [
        effective([Layer("Tenant 'x'", msgspec.convert(given, Rules))])
        for given in (EVERY_RULE, *drawn(RULES, RULEBOOKS, number))
    ]
    for index, book in enumerate(books):
        await place(api, f"{name}-{index}", book)
    await api.create(Namespace.resource, {"metadata": {"name": name}})
    judged, told = 0, set[str]()
    for index, (resource, value) in enumerate(drawn(OBJECTS, EXAMPLES, number)):
        try:
            stored = await tried(api, resource, value, name)
        except (Invalid, Forbidden):
            continue  # no such object at all, whatever the rules
        turn = index % len(books)
        request = Request(
            group=resource.group,
            resource=resource.plural,
            namespace=f"{name}-{turn}",
            namespace_labels={TENANT: "t"},
            object=stored,
        )
        found = violations(request, books[turn].enforce)
        judged += 1
        told.update(finding.rule for finding in found)
        answer = await refusal(api, resource, value, f"{name}-{turn}")
        if found:
            # Where any of several wrong keys is named, only the rule is the same.
            text = f"(rule {found[0].rule} " if versions.IS_WEBHOOK else str(found[0])
            assert text in answer, f"seed {number}: {value}"
        else:
            assert not answer, f"seed {number}: {value}"
    assert judged > EXAMPLES / 2, "most of them are objects"
    assert len(told) > 6, told
