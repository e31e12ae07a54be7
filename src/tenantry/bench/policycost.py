"""What each of Tenantry's admission policies costs a pod: it is bound a few times more, in the benchmark's namespaces.

    per policy:  make pods (dry run) ─► copies of the policy and its bindings ─► make pods again ─► take them away

What is in force is never taken away, not for a moment and not in these namespaces: a guardrail that a benchmark opens
is one that a crash leaves open. The copies belong to one of the benchmark's tenants and go with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tenantry.api import marks
from tenantry.api.errors import ApiError, NotFound
from tenantry.api.model import Resource
from tenantry.api.tenant import Tenant
from tenantry.bench.levels import uid
from tenantry.bench.load import saturate
from tenantry.bench.objects import deadline, post
from tenantry.kube.client import Client

Json = dict[str, Any]
Talk = Callable[[str], None]

GROUP = "admissionregistration.k8s.io"
COPIES = 4
SLICE = 400
"""How many pods are made, as dry runs, each time; fewer where fewer are asked for."""

SLICES = 3
"""How often on each side."""

IN_FORCE_SECONDS = 60.0
LOOK_SECONDS = 0.1
PROBE = "bench-probe"


class PolicyCost(msgspec.Struct, frozen=True, kw_only=True):
    """What one policy costs.

    Args:
        policy: Its name.
        kind: Validating or Mutating.
        milliseconds: How much longer the API server took for each pod with the policy once more, with as many
            requests as it takes; below zero where the noise was greater.
        share: Of the time that a pod took with everything in force.
    """

    policy: str
    kind: str
    milliseconds: float
    share: float


def _resources(kind: str) -> tuple[Resource, Resource]:
    """Return the policies of a kind, and their bindings."""
    plural = f"{kind.lower()}admissionpolic"
    return (
        Resource(GROUP, "v1", f"{plural}ies", f"{kind}AdmissionPolicy", namespaced=False),
        Resource(GROUP, "v1", f"{plural}ybindings", f"{kind}AdmissionPolicyBinding", namespaced=False),
    )


async def costs(
    client: Client,
    author: Client,
    *,
    tenants: Sequence[str],
    requests: Sequence[tuple[str, bytes]],
    count: int,
    talk: Talk,
) -> list[PolicyCost]:
    """Return what each policy about pods costs, the dearest first.

    Args:
        client: An administrator's.
        author: Who makes the pods.
        tenants: The benchmark's own.
        requests: The path and the body of a pod in each of their namespaces.
        count: How many pods to make, at most, each time.
        talk: Told what happens, for a person.
    """
    count = min(count, SLICE)
    found: list[PolicyCost] = []
    owner = await uid(client, Tenant.resource, tenants[0])
    for kind in ("Validating", "Mutating"):
        policies, bindings = [await _ours(client, resource) for resource in _resources(kind)]
        for policy in sorted(policies, key=lambda each: each["metadata"]["name"]):
            if not is_about_pods(policy):
                continue
            name = policy["metadata"]["name"]
            bound = [each for each in bindings if each["spec"]["policyName"] == name]
            before: list[float] = []
            after: list[float] = []
            # The same before as behind it: what the machine does meanwhile is on both sides.
            before += [await _slice(author, requests, count) for _ in range(SLICES)]
            async with _copied(client, author, kind, tenants, owner, policy, bound, requests[0]):
                after += [await _slice(author, requests, count) for _ in range(2 * SLICES)]
            before += [await _slice(author, requests, count) for _ in range(SLICES)]
            # The quickest of each: whatever else the machine does only ever adds.
            base = min(before)
            cost = (min(after) - base) / COPIES
            share = round(cost / base, 3)
            found.append(PolicyCost(policy=name, kind=kind, milliseconds=round(1000 * cost, 3), share=share))
            talk(f"{name}: {1000 * cost:.2f} ms of {1000 * base:.2f} ms for each pod")
    return sorted(found, key=lambda each: -each.milliseconds)


def is_about_pods(policy: Json) -> bool:
    """Tell whether a policy is asked when a pod is made."""
    return any(
        {"", "*"} & set(rule["apiGroups"])
        and {"pods", "*", "*/*"} & set(rule["resources"])
        and {"CREATE", "*"} & set(rule["operations"])
        for rule in policy["spec"]["matchConstraints"].get("resourceRules", ())
    )


async def _ours(client: Client, resource: Resource) -> list[Json]:
    selectors = {"labelSelector": f"{marks.MANAGED_BY}={marks.MANAGER}"}
    return [item async for page in client.pages(resource, dict[str, Any], selectors=selectors) for item in page.items]


async def _slice(author: Client, requests: Sequence[tuple[str, bytes]], count: int) -> float:
    """Make pods, as dry runs, and return the seconds for each."""
    began = time.perf_counter()
    many = [requests[number % len(requests)] for number in range(count)]
    await saturate(lambda each: author.request("POST", each[0], query={"dryRun": "All"}, body=each[1]), many)
    return (time.perf_counter() - began) / count


# -- copies ---------------------------------------------------------------------------------------


@asynccontextmanager
async def _copied(  # noqa: PLR0917 - the parts of one thing
    client: Client,
    author: Client,
    kind: str,
    tenants: Sequence[str],
    owner: str,
    policy: Json,
    bindings: Sequence[Json],
    request: tuple[str, bytes],
) -> AsyncGenerator[None]:
    """Have a policy in force a few times more in the tenants' namespaces while the context is open."""
    resources = _resources(kind)
    name = policy["metadata"]["name"]
    made = [
        *(copied(policy, f"{tenants[0]}-{name}-{number}", owner, tenants) for number in range(COPIES)),
        *(
            copied(
                each,
                f"{tenants[0]}-{each['metadata']['name']}-{number}",
                owner,
                tenants,
                f"{tenants[0]}-{name}-{number}",
            )
            for number in range(COPIES)
            for each in bindings
        ),
        # The last to be seen: when it acts, so do the others.
        *marker(kind, f"{tenants[0]}-marker", owner, tenants),
    ]
    placed = [(resources[1] if "policyName" in value["spec"] else resources[0], value) for value in made]
    try:
        for resource, value in placed:
            await post(client, resource, value)
        await _is_marked(author, request, wanted=True)
        yield
    finally:
        await asyncio.shield(_remove(client, placed))
    await _is_marked(author, request, wanted=False)


async def _remove(client: Client, placed: Sequence[tuple[Resource, Json]]) -> None:
    for resource, value in placed:
        with contextlib.suppress(NotFound):
            await client.delete(resource, "", value["metadata"]["name"])


def copied(value: Json, name: str, owner: str, tenants: Sequence[str], policy: str = "") -> Json:
    """Return a policy, or a binding of the policy that is named, that is in force in these tenants' namespaces only."""
    spec = copy.deepcopy(value["spec"])
    if policy:
        spec["policyName"] = policy
        match = spec.setdefault("matchResources", {})
        selector = match.setdefault("namespaceSelector", {})
        of_these = {"key": marks.TENANT, "operator": "In", "values": list(tenants)}
        selector["matchExpressions"] = [*selector.get("matchExpressions", ()), of_these]
    return {"metadata": _meta(name, owner, tenants), "spec": spec}


def marker(kind: str, name: str, owner: str, tenants: Sequence[str]) -> list[Json]:
    """Return a policy that acts on one pod by its name, and its binding."""
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec: Json = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [pods]},
        "matchConditions": [{"name": "probe", "expression": f"object.metadata.name == '{PROBE}'"}],
    }
    bound: Json = {"policyName": name}
    if kind == "Validating":
        spec["validations"] = [{"expression": "false", "message": PROBE}]
        bound["validationActions"] = ["Deny"]
    else:
        patch = f'[JSONPatch{{op: "add", path: "/metadata/labels/{PROBE}", value: "true"}}]'
        spec["reinvocationPolicy"] = "Never"
        spec["mutations"] = [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}]
    policy = {"metadata": _meta(name, owner, tenants), "spec": spec}
    return [policy, copied({"spec": bound}, name, owner, tenants, name)]


def _meta(name: str, owner: str, tenants: Sequence[str]) -> Json:
    resource = Tenant.resource
    reference = {"apiVersion": resource.api_version, "kind": resource.kind, "name": tenants[0], "uid": owner}
    return {"name": name, "ownerReferences": [reference]}


async def _is_marked(author: Client, request: tuple[str, bytes], *, wanted: bool) -> None:
    """Wait until the marker is in force, or is no more."""
    path, body = request
    value = msgspec.json.decode(body)
    value["metadata"]["name"] = PROBE
    probe = msgspec.json.encode(value)
    async with deadline(IN_FORCE_SECONDS, "a copy of a policy is not in force"):
        while True:
            try:
                answer = await author.request("POST", path, query={"dryRun": "All"}, body=probe)
                marked = PROBE in msgspec.json.decode(answer)["metadata"]["labels"]
            except ApiError as error:
                if PROBE not in str(error):
                    raise
                marked = True
            if marked is wanted:
                return
            await asyncio.sleep(LOOK_SECONDS)  # nothing tells when
