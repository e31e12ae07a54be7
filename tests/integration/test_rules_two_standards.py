"""What the standard Restricted refuses and Baseline warns about, and what both refuse, with the operator stopped."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tenantry.api.errors import ApiError, Forbidden
from tenantry.api.marks import CONTRIBUTED_BY
from tenantry.api.model import Resource
from tenantry.api.requests import RoleRequest
from tenantry.audit.check import STRATEGIC_PATCH
from tenantry.kube import wire
from tenantry.kube.client import MERGE_PATCH
from tenantry.local.cluster import LocalCluster
from testkit import versions
from testkit.api import PODS, SECRETS, Api, until
from testkit.hosts import GATEWAYS, INGRESSES, TCP_ROUTES, gateway, gateway_api, ingress
from testkit.operators import Operator
from testkit.people import as_person

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]

BOTH, RESTRICTED = "both", "Restricted"
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
PRIORITY = "two-standards-high"
SERVICES = Resource("", "v1", "services", "Service")
RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCE_CLAIM_TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")


@pytest_asyncio.fixture
async def alice(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """The owner, with a certificate of her own."""
    async with as_person(tenancy, tmp_path, "alice") as person:
        yield person


NODE_NAME = "two-standards"


@pytest_asyncio.fixture
async def kubelet(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """A node, with the certificate of a kubelet."""
    async with as_person(tenancy, tmp_path, f"system:node:{NODE_NAME}", "system:nodes") as node:
        yield node


def pod(container: Json | None = None, **spec: object) -> Json:
    """Return a pod that the standard Restricted accepts, with changes."""
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    limits = {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    main = {"name": "main", "image": "busybox", "securityContext": context, **limits, **(container or {})}
    safe = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    return {"metadata": {"name": "p"}, "spec": {"containers": [main], "securityContext": safe, **spec}}


def attracted(**term: list[Json]) -> Json:
    """Return a pod with one term of node affinity."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return pod(affinity={"nodeAffinity": required})


def tolerant(**toleration: str) -> Json:
    """Return a pod with one toleration."""
    return pod(tolerations=[toleration])


async def told(person: Api, resource: Resource, manifest: Json, namespace: str) -> tuple[str, str]:
    """Return the refusal of a dry run and its warnings; "" for none."""
    body = msgspec.json.encode({"apiVersion": resource.api_version, "kind": resource.kind, **manifest})
    try:
        url = wire.path(resource, namespace)
        async with person.client.open("POST", url, query={"dryRun": "All"}, body=body) as response:
            return "", " ".join(response.headers.getall("Warning", []))
    except ApiError as error:
        return str(error), ""


def sized(requests: Json | None, limits: Json) -> Json:
    """Return a pod whose container has these requests and limits."""
    given = {"requests": requests} if requests is not None else {}
    return pod({"resources": {**given, "limits": limits}})


def annotated(key: str, value: str, manifest: Json | None = None) -> Json:
    """Return an object with one annotation; a Service if no other is given."""
    found = manifest or {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    return {**found, "metadata": {**found["metadata"], "annotations": {key: value}}}


def infrastructure(key: str) -> Json:
    """Return a Gateway whose controller annotates its Service."""
    found = gateway("www.two-standards.example")
    return {**found, "spec": {**found["spec"], "infrastructure": {"annotations": {key: "www.victim.example"}}}}


def mounted(type_: str, **source: object) -> Json:
    """Return a pod with an inline volume of a type."""
    return pod(volumes=[{"name": "v", type_: source}])


def claimed(**request: object) -> Json:
    """Return a ResourceClaim with one request of devices."""
    requests = [{"name": "r", **request}]
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}}


GPU = "gpu.example.com"
ALL: Json = {"deviceClassName": GPU, "allocationMode": "All"}
OF_ALL = claimed(exactly=ALL)
FIRST_OF_ALL = claimed(firstAvailable=[{"name": "s", **ALL}])
TEMPLATE_OF_ALL: Json = {"metadata": {"name": "c"}, "spec": {"spec": OF_ALL["spec"]}}
INGRESS = ingress("www.two-standards.example")
DNS_NAME = "external-dns.alpha.kubernetes.io/hostname"
NGINX = "nginx.ingress.kubernetes.io"
OWN = "OWN-NAMESPACE"
"""Stands for the namespace of the request in values of annotations."""

NO_LIMITS: Json = {"resources": {}}
HOST_NAME: Json = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}
NODE: Json = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
HIGH = "node-role.kubernetes.io/control-plane"

ATTACKS: list[tuple[str, str, Resource, Json]] = [
    ("scheduling.nodeSelectors", RESTRICTED, PODS, pod(nodeSelector={"kubernetes.io/hostname": "node-1"})),
    ("scheduling.nodeSelectors", RESTRICTED, PODS, attracted(matchExpressions=[HOST_NAME])),
    ("scheduling.nodeSelectors", RESTRICTED, PODS, attracted(matchFields=[NODE])),
    ("containers.limitRatios", BOTH, PODS, sized({"cpu": "1m"}, {"cpu": "30", "memory": "1Gi"})),
    ("containers.limitRatios", BOTH, PODS, sized({"memory": "0"}, {"cpu": "1", "memory": "1Gi"})),
    (
        "containers.limitRatios",
        BOTH,
        PODS,
        pod(NO_LIMITS, resources={"requests": {"cpu": "1m"}, "limits": {"cpu": "30"}}),
    ),
    ("containers.maxLimits", BOTH, PODS, sized(None, {"cpu": "64", "memory": "1Ti"})),
    ("containers.maxLimits", BOTH, PODS, pod(NO_LIMITS, resources={"limits": {"memory": "1Ti"}})),
    ("containers.requiredLimits", RESTRICTED, PODS, pod(NO_LIMITS)),
    ("annotations.dangerous", BOTH, SERVICES, annotated(DNS_NAME, "www.victim.example")),
    ("annotations.dangerous", BOTH, SERVICES, annotated("external-dns.kubernetes.io/internal-hostname", "victim")),
    ("annotations.dangerous", BOTH, SERVICES, annotated("service.beta.kubernetes.io/azure-dns-label-name", "victim")),
    ("annotations.dangerous", BOTH, SERVICES, annotated("getambassador.io/config", "---")),
    ("annotations.dangerous", BOTH, INGRESSES, annotated("cert-manager.io/common-name", "victim.example", INGRESS)),
    ("annotations.dangerous", BOTH, INGRESSES, annotated(f"{NGINX}/server-snippet", "return 200;", INGRESS)),
    ("annotations.dangerous", BOTH, INGRESSES, annotated(f"{NGINX}/auth-secret", "victim/password", INGRESS)),
    ("annotations.dangerous", BOTH, INGRESSES, annotated("haproxy-ingress.github.io/config-backend", "x", INGRESS)),
    (
        *("annotations.dangerous", BOTH, INGRESSES),
        annotated("haproxy-ingress.github.io/server-alias-regex", ".*victim.*", INGRESS),
    ),
    ("annotations.dangerous", BOTH, INGRESSES, annotated("alb.ingress.kubernetes.io/conditions.web", "[]", INGRESS)),
    (
        *("annotations.dangerous", BOTH, INGRESSES),
        annotated("traefik.ingress.kubernetes.io/router.middlewares", "victim-auth@kubernetescrd", INGRESS),
    ),
    *(
        ("annotations.dangerous", BOTH, INGRESSES, annotated(f"{NGINX}/{key}", value, INGRESS))
        for key, value in (
            ("auth-secret", f"{OWN}/a,victim/password"),
            ("auth-secret", f"{OWN}/a victim/password"),
            ("auth-secret", f"{OWN}/../victim/password"),
            ("auth-realm", 'x"; return 200'),
            ("rewrite-target", "/a;\n}} location / { return 200; }"),
            ("proxy-cookie-path", "/ '/x'"),
        )
    ),
    ("annotations.unknown", RESTRICTED, INGRESSES, annotated(f"{NGINX}/proxy-next-generation", "x", INGRESS)),
    ("annotations.dangerous", BOTH, PODS, annotated("dns.alpha.kubernetes.io/external", "www.victim.example", pod())),
    ("annotations.dangerous", BOTH, PODS, annotated(DNS_NAME, "www.victim.example", pod())),
    (
        *("annotations.dangerous", BOTH, TCP_ROUTES),
        annotated(DNS_NAME, "www.victim.example", {"metadata": {"name": "r"}, "spec": {}}),
    ),
    ("annotations.dangerous", BOTH, GATEWAYS, infrastructure(DNS_NAME)),
    ("annotations.unknown", RESTRICTED, SERVICES, annotated("example.com/unknown", "x")),
    ("annotations.unknown", RESTRICTED, INGRESSES, annotated(f"{NGINX}/auth-url", "http://x", INGRESS)),
    ("annotations.unknown", RESTRICTED, GATEWAYS, infrastructure("example.com/unknown")),
    ("podSecurity.nfs", RESTRICTED, PODS, mounted("nfs", server="169.254.169.254", path="/")),
    (
        "podSecurity.iscsi",
        RESTRICTED,
        PODS,
        mounted("iscsi", targetPortal="10.0.0.1", iqn="iqn.2001-04.com.x:a", lun=0),
    ),
    ("podSecurity.flexVolume", RESTRICTED, PODS, mounted("flexVolume", driver="example.com/driver")),
    ("podSecurity.nodeVolumes", RESTRICTED, PODS, mounted("cephfs", monitors=["10.0.0.1"])),
    ("podSecurity.nodeVolumes", RESTRICTED, PODS, mounted("azureFile", secretName="s", shareName="x")),
    (
        *("podSecurity.csiDrivers", RESTRICTED, PODS),
        mounted("csi", driver="smb.csi.k8s.io", volumeAttributes={"source": "//169.254.169.254/share"}),
    ),
    ("devices.allocateAll", RESTRICTED, RESOURCE_CLAIMS, OF_ALL),
    ("devices.allocateAll", RESTRICTED, RESOURCE_CLAIMS, FIRST_OF_ALL),
    ("devices.allocateAll", RESTRICTED, RESOURCE_CLAIM_TEMPLATES, TEMPLATE_OF_ALL),
    ("priorityClasses.allowed", RESTRICTED, PODS, pod(priorityClassName=PRIORITY)),
    ("scheduling.controlPlaneTolerations", BOTH, PODS, tolerant(key=HIGH, operator="Exists")),
    ("scheduling.controlPlaneTolerations", BOTH, PODS, tolerant(key="CriticalAddonsOnly", operator="Exists")),
]
"""The rule, which standards refuse the object, its kind, and the object."""

HARMLESS: list[tuple[Resource, Json]] = [
    (RESOURCE_CLAIMS, claimed(exactly={"deviceClassName": GPU})),
    (SERVICES, annotated("prometheus.io/scrape", "true")),
    (SERVICES, annotated("description", "the shop")),
    (INGRESSES, annotated(f"{NGINX}/auth-secret", "password", INGRESS)),
    (INGRESSES, annotated(f"{NGINX}/auth-secret", f"{OWN}/password", INGRESS)),
    (INGRESSES, annotated(f"{NGINX}/proxy-body-size", "8m", INGRESS)),
    (INGRESSES, annotated(f"{NGINX}/rewrite-target", "/$1/(a|b)", INGRESS)),
    (INGRESSES, annotated(f"{NGINX}/auth-realm", "Members of the shop, please log in", INGRESS)),
    (PODS, pod()),
    (PODS, annotated("example.com/hostname", "x", pod())),
    (PODS, pod(nodeSelector={"kubernetes.io/arch": "amd64"})),
    (PODS, sized({"cpu": "100m", "memory": "1Gi"}, {"cpu": "4", "memory": "8Gi"})),
    (PODS, tolerant(key="node.kubernetes.io/not-ready", operator="Exists", effect="NoExecute")),
]


async def test_restricted_refuses_what_baseline_warns_about(
    api: Api, alice: Api, operator: Operator, name: str
) -> None:
    """X02: each attack is refused for strangers, and told to all other tenants; what both refuse passes in neither."""
    mild, strict = name, f"{name}-strict"
    await api.create(PRIORITY_CLASSES, {"metadata": {"name": PRIORITY}, "value": 1_000_000})
    await api.make_tenant(mild)
    await api.make_tenant(strict, rules={"standard": "Restricted"})

    async def in_force() -> bool:
        attack = pod(nodeSelector={"kubernetes.io/hostname": "node-1"})
        _, warned = await told(alice, PODS, attack, mild)
        refused, _ = await told(alice, PODS, attack, strict)
        return "(rule scheduling.nodeSelectors" in warned and "(rule scheduling.nodeSelectors" in refused

    await until(in_force, "the standards are in force")
    await operator.stop()
    async with gateway_api(api):
        await attacked(alice, mild, strict)


def within(namespace: str, manifest: Json) -> Json:
    """Return the manifest with the namespace in place of `OWN`."""
    written = msgspec.json.encode(manifest).replace(OWN.encode(), namespace.encode())
    found: Json = msgspec.json.decode(written)
    return found


async def attacked(alice: Api, mild: str, strict: str) -> None:
    """Try every attack in a namespace of each standard."""
    for rule, where, resource, manifest in ATTACKS:
        refused, _ = await told(alice, resource, within(strict, manifest), strict)
        assert f"(rule {rule} of Tenantry's standard Restricted in Tenant '{strict}')" in refused, manifest
        refused, warned = await told(alice, resource, within(mild, manifest), mild)
        expected = refused if where == BOTH else warned
        assert f"(rule {rule} of Tenantry's standard)" in expected, (manifest, refused, warned)
        assert (where == BOTH) or not refused, refused
    for namespace in (mild, strict):
        # A policy of slices also refuses a toleration without a key, and either may be the first.
        assert (await told(alice, PODS, tolerant(operator="Exists"), namespace))[0]
        for resource, manifest in HARMLESS:
            assert await told(alice, resource, within(namespace, manifest), namespace) == ("", ""), manifest


@pytest.mark.usefixtures("operator")
async def test_a_field_of_a_tenant_replaces_the_warning(api: Api, alice: Api, name: str) -> None:
    """X02: a list that an administrator sets also ends the warning of the standard."""
    await api.make_tenant(name, rules={"scheduling": {"nodeSelectors": ["disk"]}})
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod(nodeSelector={"zone": "a"})["spec"]}
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template}

    async def in_force() -> bool:
        refused, _ = await told(alice, PODS, pod(nodeSelector={"zone": "a"}), name)
        return f"(rule scheduling.nodeSelectors of Tenant '{name}')" in refused

    await until(in_force, "the list is in force")
    assert await told(alice, PODS, pod(nodeSelector={"disk": "ssd"}), name) == ("", "")
    _, warned = await told(alice, DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec}, name)
    assert warned.count("scheduling.nodeSelectors") == 1, warned


@pytest.mark.usefixtures("operator")
async def test_annotations_name_hosts_that_the_rules_give_the_tenant(api: Api, alice: Api, name: str) -> None:
    """X02: an administrator assigns hosts, and extends the list of known keys; other hosts and keys are refused."""
    rules: Json = {
        "standard": "Restricted",
        "hostnames": {"allowed": [r"(.*[.])?own[.]example"]},
        "annotations": {"known": ["example[.]com/.*"]},
    }
    await api.make_tenant(name, rules=rules)

    async def in_force() -> bool:
        refused, _ = await told(alice, SERVICES, annotated(DNS_NAME, "www.victim.example"), name)
        return "(rule annotations.dangerous" in refused

    await until(in_force, "the rules are in force")
    assert await told(alice, SERVICES, annotated(DNS_NAME, "www.own.example, own.example"), name) == ("", "")
    assert await told(alice, SERVICES, annotated("example.com/own", "x"), name) == ("", "")
    refused, _ = await told(alice, SERVICES, annotated("example.org/own", "x"), name)
    assert "ask an administrator to add its key to annotations.known" in refused
    refused, _ = await told(alice, SERVICES, annotated(DNS_NAME, "www.own.example,victim.example"), name)
    assert "hosts must fit hostnames.allowed or hostnames.domain" in refused
    # An object from before stays as it is: only what a request writes counts.
    await api.create(SERVICES, annotated("prometheus.io/scrape", "true"), name)
    await alice.patch(SERVICES, "s", {"metadata": {"labels": {"a": "b"}}}, name)
    with pytest.raises(Forbidden, match=r"annotations\.unknown"):
        await alice.patch(SERVICES, "s", {"metadata": {"annotations": {"example.org/own": "x"}}}, name)


ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
YEARS = 10 * 365 * 86_400
FOR_PODS = 3607
"""Seconds that the API server extends to a year for tokens that are bound to a pod."""


async def requested(person: Api, namespace: str, seconds: int | None, **spec: Json) -> str:
    """Request a token of the default ServiceAccount; return the refusal, "" for none."""
    asked = {**spec, **({} if seconds is None else {"expirationSeconds": seconds})}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {"name": "default"}}
    try:
        await person.create(ACCOUNTS, {**request, "spec": asked}, namespace, subresource="token")
    except ApiError as error:
        return str(error)
    return ""


async def test_tokens_expire(api: Api, alice: Api, kubelet: Api, operator: Operator, name: str) -> None:
    """X02: neither a ten-year token nor one in a Secret is left when an owner is removed; kubelets get tokens."""
    mild, strict, short = name, f"{name}-strict", f"{name}-short"
    await api.make_tenant(mild)
    await api.make_tenant(strict, rules={"standard": "Restricted"})
    await api.make_tenant(short, rules={"tokens": {"maxSeconds": 600}})
    secret: Json = {
        "metadata": {"name": "token", "annotations": {"kubernetes.io/service-account.name": "default"}},
        "type": "kubernetes.io/service-account-token",
    }

    async def in_force() -> bool:
        refused, _ = await told(alice, SECRETS, secret, strict)
        _, warned = await told(alice, SECRETS, secret, mild)
        few = await requested(alice, short, 601)
        return "(rule tokens.secrets" in refused and "(rule tokens.secrets" in warned and "at most 600" in few

    await until(in_force, "the rules are in force")
    await api.create(SECRETS, secret, mild)
    running = await api.create(PODS, pod(), mild)
    binding = {"kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": NODE_NAME}}
    await api.create(PODS, {**binding, "apiVersion": "v1"}, mild, subresource="binding")
    await operator.stop()
    bound = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": running["metadata"]["uid"]}}
    most = "): set spec.expirationSeconds to at most 86400"
    for namespace, source in ((mild, ""), (strict, f" Restricted in Tenant '{strict}'")):
        rule = f"(rule tokens.maxSeconds of Tenantry's standard{source}{most}"
        assert f"token request 'default' is for {YEARS} seconds {rule}" in await requested(alice, namespace, YEARS)
        assert rule in await requested(api, namespace, 86_401)
        assert rule in await requested(alice, namespace, FOR_PODS, **bound)
        for seconds in (None, 86_400, FOR_PODS):
            assert not await requested(alice, namespace, seconds)
    # A Secret from before stays as it is, and gets no other ServiceAccount's token.
    other: Json = {"metadata": {"annotations": {"kubernetes.io/service-account.name": "other"}}}
    await alice.patch(SECRETS, "token", {"metadata": {"labels": {"a": "b"}}}, mild)
    refused, _ = await told(alice, SECRETS, {**secret, "type": "Opaque"}, strict)
    assert not refused
    assert "tokens.secrets" in await changed(alice, other, mild)
    for seconds in (FOR_PODS, 7 * 86_400):
        assert not await requested(kubelet, mild, seconds, **bound)


async def changed(person: Api, patch: Json, namespace: str) -> str:
    """Return the warnings about a change of the Secret `token`."""
    url, body = wire.path(SECRETS, namespace, "token"), msgspec.json.encode(patch)
    answer = person.client.open("PATCH", url, query={"dryRun": "All"}, body=body, content_type=MERGE_PATCH)
    async with answer as response:
        return " ".join(response.headers.getall("Warning", []))


def without(spec: Json | None) -> Json:
    """Return an object with this spec."""
    return {"metadata": {"name": "p"}, "spec": spec}


EMPTY = [
    (PODS, without(None), "spec.containers: Required value"),
    (PODS, without({"containers": None}), "spec.containers: Required value"),
    (PODS, without({**pod()["spec"], "initContainers": None, "volumes": None, "tolerations": None}), ""),
    (PODS, annotated("kubernetes.io/ingress-bandwidth", "1M", without({})), "spec.containers: Required value"),
    (PODS, annotated("kubernetes.io/ingress-bandwidth", "1M", without({"containers": []})), "spec.containers: Req"),
    (PODS, mounted("projected", sources=None), ""),
    (SECRETS, {"metadata": {"name": "s"}, "data": {"empty": None}}, ""),
    (RESOURCE_CLAIMS, without(None), ""),
    (RoleRequest.resource, without(None), "spec: Required value"),
    (RoleRequest.resource, {"metadata": {"name": "r"}}, "spec: Required value"),
]
"""Objects with null or nothing in a list or an object, and the API server's own answer."""


async def pulled(person: Api, manifest: Json, namespace: str) -> list[str]:
    """Return the pull policies of a pod's containers and volumes, as the API server would store them."""
    body = msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", **manifest})
    url = wire.path(PODS, namespace)
    spec = msgspec.json.decode(await person.client.request("POST", url, query={"dryRun": "All"}, body=body))["spec"]
    containers = [*spec["containers"], *spec.get("initContainers", ())]
    images = [each["image"] for each in spec.get("volumes", ()) if "image" in each]
    return [*(each["imagePullPolicy"] for each in containers), *(each["pullPolicy"] for each in images)]


@versions.changes_without_the_operator
async def test_no_pod_runs_the_cached_image_of_another_tenant(
    api: Api, alice: Api, operator: Operator, name: str
) -> None:
    """X02: Restricted pulls every image, and Baseline warns, unless kubelets verify credentials."""
    mild, strict, declared = name, f"{name}-strict", f"{name}-declared"
    await api.make_tenant(mild)
    await api.make_tenant(strict, rules={"standard": "Restricted"})
    verified: Json = {
        "standard": "Restricted",
        "images": {"credentials": "Verified"},
        "scheduling": {"tolerations": []},
    }
    await api.make_tenant(declared, rules=verified)
    cached = pod({"image": "registry.example.com/private:1", "imagePullPolicy": "Never"})
    main: Json = cached["spec"]["containers"][0]
    volume: Json = {"name": "v", "image": {"reference": "registry.example.com/private:1", "pullPolicy": "IfNotPresent"}}
    every = pod(main, initContainers=[{**main, "name": "init"}])

    async def in_force() -> bool:
        _, warned = await told(alice, PODS, cached, mild)
        is_verified = await told(alice, PODS, cached, declared) == ("", "")
        refused, _ = await told(alice, PODS, mounted("image", **volume["image"]), strict)
        return "(rule images.cached" in warned and is_verified and "podSecurity.volumeTypes" in refused

    await until(in_force, "the rules are in force")
    await operator.stop()
    for resource, manifest, answer in EMPTY:
        refused, _ = await told(alice, resource, manifest, strict)
        assert answer in refused if answer else not refused, (resource.kind, manifest, refused)
    assert await pulled(alice, every, strict) == ["Always", "Always"]
    assert await pulled(alice, every, declared) == ["Never", "Never"]
    assert await pulled(alice, every, mild) == ["Never", "Never"]
    contributed = {"key": CONTRIBUTED_BY, "operator": "Equal", "value": declared, "effect": "NoSchedule"}
    visiting = pod(main, tolerations=[contributed])
    assert await pulled(alice, visiting, declared) == ["Always"]
    # An ephemeral container, also in a pod from before.
    await alice.create(PODS, pod(main), strict)
    debug: Json = {**main, "name": "debug", "resources": {}}
    patch: Json = {"spec": {"ephemeralContainers": [debug]}}
    url = wire.path(PODS, strict, "p", "ephemeralcontainers")
    stored = msgspec.json.decode(
        await api.client.request("PATCH", url, body=msgspec.json.encode(patch), content_type=STRATEGIC_PATCH)
    )
    assert [each["imagePullPolicy"] for each in stored["spec"]["ephemeralContainers"]] == ["Always"]
