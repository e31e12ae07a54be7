"""The API server and Python come to the same verdict of a pod, in the same words, whatever pod and rules are."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from hypothesis import strategies as st

from tenantry.api.errors import ApiError, Forbidden, Invalid
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import TENANT_UID, ZONE
from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.rules import Images, Rules
from tenantry.api.tenancyrules import NAME, OWN_MARK, TenancyRulesSpec
from tenantry.controllers import tenancyrules
from tenantry.policy.catalog import violations
from tenantry.policy.check import Violation
from tenantry.policy.compile import LONGEST
from tenantry.policy.request import Request
from tenantry.policy.rules.priorityclasses import SYSTEM_PRIORITIES
from tenantry.world.rules import Layer, effective
from testkit.api import SERVICE_ACCOUNTS, Api, until
from testkit.draws import drawn, few, one, some

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]

RULEBOOKS, EXAMPLES = 12, 250
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
CLASSES = ("verdict-one", "verdict-two")

# -- rules ----------------------------------------------------------------------------------------

PERMISSION = one("Allow", "Refuse", "Refuse")
SWITCHES = (
    *("privileged", "hostNamespaces", "hostPath", "hostPorts", "hostProbes", "hostProcess", "procMount", "seLinux"),
    *("appArmor", "privilegeEscalation", "runAsRoot", "defaultCapabilities", "nfs", "iscsi", "flexVolume"),
    "nodeVolumes",
)
RESOURCES = one("cpu", "memory", "example.com/gpu")
IMAGES = ("busybox", "reg.example/a:1", "reg.example/b", "Reg.example/a", "evil/x")
PATTERNS = ("reg[.]example/.*", "busybox", "(?i)REG.*", "evil|busybox", "[a-z.]+/[ab](:1)?")
POD_SECURITY = some(
    level=one("Baseline", "Restricted", "Privileged"),
    seccomp=one("Any", "Confined", "Required"),
    capabilities=few(one("NET_ADMIN", "CHOWN", "KILL")),
    sysctls=few(one("kernel.shm_rmid_forced", "net.ipv4.tcp_syncookies")),
    csiDrivers=few(one("csi.example", "other.example")),
    volumeTypes=few(one("emptyDir", "secret", "hostPath", "image", "configMap", "projected"), 6),
    **dict.fromkeys(SWITCHES, PERMISSION),
)
RULES = some(
    podSecurity=POD_SECURITY,
    images=some(
        allowed=few(one(*PATTERNS)),
        pullPolicies=few(one("Always", "IfNotPresent", "Never")),
        cached=PERMISSION,
        credentials=one("Verified", "Unverified"),
    ),
    runtimeClasses=some(allowed=few(one(*CLASSES))),
    priorityClasses=some(allowed=few(one(*CLASSES, *SYSTEM_PRIORITIES)), system=PERMISSION),
    scheduling=some(
        nodeName=PERMISSION,
        otherTenants=PERMISSION,
        controlPlaneTolerations=PERMISSION,
        nodeSelectors=few(one("disk", "disk=ssd", "zone=a", "zone=b"), 4),
        tolerations=few(one("gpu", "spot")),
    ),
    tokens=some(maxSeconds=one(3600, 86400)),
    containers=some(
        max=st.dictionaries(RESOURCES, one("1", "200m", "64Mi", 2), max_size=3),
        maxLimits=st.dictionaries(RESOURCES, one("1", "200m", "64Mi", 2), max_size=2),
        limitRatios=st.dictionaries(RESOURCES, one("1", "1500m", 3), max_size=2),
        requiredLimits=few(RESOURCES),
    ),
)

# -- pods -----------------------------------------------------------------------------------------

TRUTH = st.booleans()
PROFILE = st.fixed_dictionaries({"type": one("Unconfined", "RuntimeDefault")})
SE_LINUX = some(type=one("container_t", "spc_t"), user=one("system_u"), role=one("r"), level=one("s0"))
HANDLER = st.one_of(
    st.fixed_dictionaries({"httpGet": some(host=one("10.0.0.1", ""), path=one("/")).map(lambda o: {"port": 80, **o})}),
    st.fixed_dictionaries({"tcpSocket": some(host=one("10.0.0.1")).map(lambda o: {"port": 80, **o})}),
    st.just({"exec": {"command": ["true"]}}),
)
QUANTITIES = st.dictionaries(RESOURCES, one("1", "100m", "300m", "1Gi", "3"), max_size=3)
CONTEXT = some(
    privileged=TRUTH,
    procMount=one("Default", "Unmasked"),
    runAsNonRoot=TRUTH,
    runAsUser=one(0, 1000),
    allowPrivilegeEscalation=TRUTH,
    capabilities=some(add=few(one("NET_ADMIN", "CHOWN", "SYS_TIME"), 2), drop=few(one("ALL", "KILL"), 2)),
    seccompProfile=PROFILE,
    appArmorProfile=PROFILE,
    seLinuxOptions=SE_LINUX,
)
CONTAINER = some(
    image=one(*IMAGES),
    imagePullPolicy=one("Always", "IfNotPresent", "Never"),
    securityContext=CONTEXT,
    ports=few(some(hostPort=one(0, 8080)).map(lambda o: {"containerPort": 8080, **o}), 1),
    livenessProbe=HANDLER,
    startupProbe=HANDLER,
    lifecycle=some(postStart=HANDLER, preStop=HANDLER),
    resources=some(limits=QUANTITIES, requests=QUANTITIES),
)
SOURCE = st.one_of(
    st.just({"configMap": {"name": "c"}}),
    some(expirationSeconds=one(600, 3600, 3607, 7200, 100_000)).map(
        lambda o: {"serviceAccountToken": {"path": f"t{o.get('expirationSeconds')}", **o}}
    ),
)
VOLUME = st.one_of(
    st.just({}),
    st.just({"emptyDir": {}}),
    st.just({"hostPath": {"path": "/"}}),
    st.just({"secret": {"secretName": "s"}}),
    st.just({"configMap": {"name": "c"}}),
    st.fixed_dictionaries({"image": st.fixed_dictionaries({"reference": one(*IMAGES)})}),
    st.just({"persistentVolumeClaim": {"claimName": "p"}}),
    st.just({"nfs": {"server": "s", "path": "/"}}),
    st.just({"iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2001-04.com.example:a", "lun": 0}}),
    st.just({"flexVolume": {"driver": "example.com/driver"}}),
    st.just({"rbd": {"monitors": ["10.0.0.1:6789"], "image": "i"}}),
    st.just({"csi": {"driver": "csi.example"}}),
    st.fixed_dictionaries({"projected": st.fixed_dictionaries({"sources": st.lists(SOURCE, max_size=3)})}),
)
EXPRESSION = st.one_of(
    st.fixed_dictionaries(
        {
            "key": one("disk", "zone", "other"),
            "operator": one("In", "NotIn"),
            "values": st.lists(one("ssd", "a", "b"), min_size=1, max_size=2),
        }
    ),
    st.fixed_dictionaries({"key": one("disk", "zone"), "operator": one("Exists")}),
)
TERM = some(
    matchExpressions=few(EXPRESSION, 2),
    matchFields=st.just([{"key": "metadata.name", "operator": "In", "values": ["n"]}]),
)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
AFFINITY = st.one_of(
    st.fixed_dictionaries(
        {REQUIRED: st.fixed_dictionaries({"nodeSelectorTerms": st.lists(TERM, min_size=1, max_size=2)})}
    ),
    st.fixed_dictionaries(
        {PREFERRED: st.lists(st.fixed_dictionaries({"weight": one(1), "preference": TERM}), max_size=2)}
    ),
)
NEAR = some(
    namespaces=st.just(["kube-system"]),
    namespaceSelector=one({}, {"matchLabels": {ZONE: "other"}}, {"matchExpressions": []}),
    labelSelector=one({}, {"matchLabels": {"a": "b"}}),
).map(lambda o: {"topologyKey": "zone", **o})
NEIGHBOURS = some(
    **{
        REQUIRED: st.lists(NEAR, max_size=2),
        PREFERRED: st.lists(st.fixed_dictionaries({"weight": one(1), "podAffinityTerm": NEAR}), max_size=2),
    }
)
TAINTS = one(
    "gpu",
    "spot",
    "node-role.kubernetes.io/control-plane",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/disk-pressure",
)
# One without a key tolerates slices, too, which another policy refuses first, or last.
TOLERATION = st.fixed_dictionaries({"key": TAINTS, "operator": one("Exists")})
SYSCTL = st.fixed_dictionaries(
    {"name": one("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "kernel.msgmax"), "value": one("1")}
)
SPEC = some(
    hostNetwork=TRUTH,
    hostPID=TRUTH,
    hostIPC=TRUTH,
    nodeName=one("n"),
    os=st.fixed_dictionaries({"name": one("linux", "windows")}),
    nodeSelector=st.dictionaries(one("disk", "zone", "other"), one("ssd", "a"), max_size=2),
    affinity=some(nodeAffinity=AFFINITY, podAffinity=NEIGHBOURS, podAntiAffinity=NEIGHBOURS),
    tolerations=few(TOLERATION, 2),
    priorityClassName=one(*CLASSES, *SYSTEM_PRIORITIES),
    runtimeClassName=one(*CLASSES),
    resources=some(limits=st.dictionaries(one("cpu", "memory"), one("100m", "3", "1Gi"), max_size=2)),
    securityContext=some(
        runAsNonRoot=TRUTH,
        runAsUser=one(0, 1000),
        seccompProfile=PROFILE,
        appArmorProfile=PROFILE,
        seLinuxOptions=SE_LINUX,
        sysctls=few(SYSCTL, 2),
    ),
)
ANNOTATIONS = st.dictionaries(
    one("container.apparmor.security.beta.kubernetes.io/c0", "other"),
    one("unconfined", "runtime/default", "localhost/x"),
)


@st.composite
def pods(draw: st.DrawFn) -> Json:
    """Return pods, of which most are valid; what is wrong with each is little, so that any rule may be the first."""
    sparse = draw(TRUTH)
    spec = draw(SPEC)
    if sparse and spec:
        spec = dict([draw(st.sampled_from(sorted(spec.items())))])
    containers = draw(st.lists(CONTAINER, min_size=1, max_size=1 if sparse else 2))
    inits = draw(st.lists(CONTAINER, max_size=0 if sparse else 1))
    named: list[Json] = [
        {"name": f"c{number}", "image": "busybox", **each} for number, each in enumerate([*containers, *inits])
    ]
    volumes = [{"name": f"v{number}", **each} for number, each in enumerate(draw(st.lists(VOLUME, max_size=2)))]
    if spec.get("os", {}).get("name") == "windows":
        # Linux' own fields are refused there.
        spec = {key: value for key, value in spec.items() if key in {"os", "nodeName", "tolerations"}}
        for each in named:
            context = each.get("securityContext", {})
            each["securityContext"] = {key: context[key] for key in ("runAsNonRoot",) if key in context}
    for each in named[len(containers) :]:
        for field in ("livenessProbe", "startupProbe", "lifecycle"):
            each.pop(field, None)
    return {
        "metadata": {"name": "p", "annotations": draw(ANNOTATIONS)},
        "spec": {
            **spec,
            # Its volume has a name that the server makes anew each time.
            "automountServiceAccountToken": False,
            "containers": named[: len(containers)],
            "initContainers": named[len(containers) :],
            "volumes": volumes,
        },
    }


# -- the verdicts ---------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def classes(api: Api) -> AsyncGenerator[None]:
    """Classes that pods may name."""
    for name in CLASSES:
        await api.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": 10})
        await api.create(RUNTIME_CLASSES, {"metadata": {"name": name}, "handler": "runc"})
    yield
    for name in CLASSES:
        await api.delete(PRIORITY_CLASSES, name)
        await api.delete(RUNTIME_CLASSES, name)


async def try_(api: Api, namespace: str, pod: Mapping[str, Any]) -> Json:
    """Create a pod without keeping it, and return it as the server would have stored it."""
    url = f"/api/v1/namespaces/{namespace}/pods"
    body = msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", **pod})
    return msgspec.json.decode(await api.client.request("POST", url, query={"dryRun": "All"}, body=body))


async def answer_to(api: Api, namespace: str, pod: Json) -> str:
    """Return what the server has against a pod; "" where it takes it."""
    try:
        await try_(api, namespace, pod)
    except ApiError as error:
        return str(error)
    return ""


async def place(api: Api, namespace: str, spec: TenancyRulesSpec | None, *, closed: bool = False) -> None:
    """Make a namespace with these rules, and wait until they are in force there; `closed` where no pod passes them."""
    labels = {TENANT_UID: "u", OWN_MARK: "own"} if spec is not None else {}
    await api.create(Namespace.resource, {"metadata": {"name": namespace, "labels": labels}})
    if spec is not None:
        for each in tenancyrules.objects(spec, ObjectMeta(name=NAME, namespace=namespace)):
            await api.client.create(each)

    async def so() -> bool:
        try:
            await try_(
                api, namespace, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
            )
        except (Forbidden, Invalid) as error:
            # That there are no rules yet is told, too, as what is invalid.
            return "(rule " in str(error)
        return not closed and await api.find(SERVICE_ACCOUNTS, "default", namespace) is not None

    await until(so, f"the rules of {namespace} are in force")


def judge(namespace: str, pod: Json, spec: TenancyRulesSpec) -> list[Violation]:
    """Return what Python has against a pod, as the server has filled it in."""
    return violations(Request(resource="pods", namespace=namespace, object=pod), spec.enforce)


def is_told(found: list[Violation], answer: str) -> bool:
    """Return whether an answer has the first finding of each rule, or of one rule if not all fit."""
    firsts = {finding.rule: finding for finding in reversed(found)}.values()
    whole = len("; ".join(map(str, firsts))) <= LONGEST
    return all(str(each) in answer for each in (firsts if whole else found[:1])) and bool(found) == bool(answer)


@pytest.mark.usefixtures("classes")
async def test_the_api_server_and_python_agree(api: Api, name: str) -> None:
    """X02, E15: the same verdict and the same words, of random pods under random rules."""
    number = random.randrange(2**32)
    print(f"seed {number}")
    books = [
        effective([Layer("Tenant 'x'", msgspec.convert(given_, Rules))]) for given_ in drawn(RULES, RULEBOOKS, number)
    ]
    nothing = Rules(images=Images(allowed=()))
    await place(api, f"{name}-closed", effective([Layer("Tenant 'x'", nothing)]), closed=True)
    for index, book in enumerate(books):
        await place(api, f"{name}-{index}", book)
    await place(api, name, None)
    judged, told = 0, set[str]()
    for index, pod in enumerate(drawn(pods(), EXAMPLES, number)):
        try:
            stored = await try_(api, name, pod)
        except (Invalid, Forbidden):
            continue  # no pod at all, whatever the rules
        for namespace, book in [
            (f"{name}-{(index + shift) % len(books)}", books[(index + shift) % len(books)]) for shift in (0, 1)
        ]:
            found = judge(namespace, stored, book)
            judged += 1
            told.update(finding.rule for finding in found)
            answer = await answer_to(api, namespace, pod)
            assert is_told(found, answer), f"seed {number}: {pod}"
    assert judged > EXAMPLES / 2, "most of the pods are pods"
    assert len(told) > 12, told


async def warnings(api: Api, namespace: str, pod: Json) -> set[str]:
    """Return the rules in the server's warnings for a Deployment of such pods, created as a dry run."""
    labels = {"app": "p"}
    template = {"metadata": {"labels": labels, "annotations": pod["metadata"]["annotations"]}, "spec": pod["spec"]}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    body = msgspec.json.encode({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "p"}, "spec": spec})
    url = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    async with api.client.open("POST", url, query={"dryRun": "All"}, body=body) as response:
        return set(re.findall(r"\(rule (\S+) of ", " ".join(response.headers.getall("Warning", []))))


@pytest.mark.usefixtures("classes")
async def test_templates_are_warned_of_what_their_pods_are_refused_for(api: Api, name: str) -> None:
    """E15: the same rules, of random pods under random rules."""
    number = random.randrange(2**32)
    print(f"seed {number}")
    # A LimitRange gives pods the limits that their template has not.
    none: Json = {"containers": {"maxLimits": {}, "limitRatios": {}}}
    rules = [{**each, **none} for each in drawn(RULES, 4, number)]
    books = [effective([Layer("Tenant 'x'", msgspec.convert(given, Rules))]) for given in rules]
    for index, book in enumerate(books):
        await place(api, f"{name}-{index}", book)
    await place(api, name, None)
    judged, told = 0, set[str]()
    for index, pod in enumerate(drawn(pods(), EXAMPLES, number)):
        turn = index % len(books)
        try:
            stored = await try_(api, name, pod)
            warned = await warnings(api, f"{name}-{turn}", pod)
        except (Invalid, Forbidden):
            continue  # no pod at all, or no template, whatever the rules
        found = {finding.rule for finding in judge(f"{name}-{turn}", stored, books[turn])}
        # Ports of pods in the node's network become the node's when the pod is made.
        late = {"podSecurity.hostPorts"} if stored["spec"].get("hostNetwork") else set[str]()
        # A mutating policy sets the pull policy of pods.
        late |= {"images.cached"}
        assert warned - late == found - late, f"seed {number}: {pod}"
        judged += 1
        told |= found
    assert judged > EXAMPLES / 2, "most of the pods are pods"
    assert len(told) > 6, told
