"""The runtime of pods on a slice: only its tenant chooses."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api import marks, reasons
from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import Namespace
from tenantry.api.runtime import RuntimeClass
from tenantry.api.slice import SliceClaim
from testkit.api import PODS, Api, until
from testkit.pool import Pool, claim, state
from testkit.refusals import refusal, tried
from testkit.trees import Trees, subtenant

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")

Json = dict[str, Any]


@pytest_asyncio.fixture
async def runtimes(api: Api, name: str) -> AsyncGenerator[tuple[str, str]]:
    """The cluster's sandbox, and a runtime that shares the node's kernel."""
    both = (f"{name}-sandbox", f"{name}-plain")
    for called, handler in zip(both, ("runsc", "runc"), strict=True):
        await api.create(RuntimeClass.resource, {"metadata": {"name": called}, "handler": handler})
    yield both
    for called in both:
        await api.delete(RuntimeClass.resource, called)


def pod(runtime: str = "") -> Json:
    """Return a pod that names a runtime, or none."""
    named = {"runtimeClassName": runtime} if runtime else {}
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "busybox"}], **named}}


async def gets(api: Api, namespace: str, asked: str, wanted: str) -> None:
    """Wait until a new pod runs in a runtime."""

    async def so() -> bool:
        try:
            made = await tried(api, PODS, pod(asked), namespace)
        except Forbidden:
            return False
        runtime: str = made["spec"].get("runtimeClassName", "")
        return runtime == wanted

    await until(so, f"pods in {namespace} that ask for {asked!r} run in {wanted!r}")


async def test_a_tenant_chooses_its_runtime_on_its_slice_and_a_subtenant_does_not(
    api: Api, trees: Trees, pool: Pool, runtimes: tuple[str, str], name: str
) -> None:
    """E14: also a Subtenant that the claim names stays in the sandbox, and off its parent's nodes."""
    sandbox, plain = runtimes
    await pool.add(1)
    await api.make_tenant(name, isolation={"runtime": "Sandboxed"})
    await api.condition(name, reasons.SANDBOXED, holds=True, reason=reasons.RUNTIME_CLASS_IN_FORCE)
    sub = await trees.make(name, "sub", subtenant("bob"))
    await gets(api, name, "", sandbox)
    assert "must be" in await refusal(api, PODS, pod(plain), name)
    await claim(api, name, "fast", selector=pool.selector, users="Everybody", subnamespaces=["sub"])
    bound = await state(api, name, "fast", "Bound")
    assert bound["status"]["namespaces"] == [name]
    await gets(api, name, plain, plain)
    await gets(api, name, "", sandbox)
    await gets(api, sub, "", sandbox)
    assert f"must be '{sandbox}'" in await refusal(api, PODS, pod(plain), sub)
    labels = (await api.get(Namespace.resource, sub))["metadata"]["labels"]
    assert marks.SLICE not in labels
    await api.delete(SliceClaim.resource, "fast", name)

    async def forced_again() -> bool:
        return "must be" in await refusal(api, PODS, pod(plain), name)

    await until(forced_again, "the sandbox is forced again")
