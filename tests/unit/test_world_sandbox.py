"""Which RuntimeClass is the sandbox, and which namespaces run in it."""

from __future__ import annotations

import pytest

from tenantry.api import marks
from tenantry.api.model import ObjectMeta
from tenantry.api.runtime import RuntimeChoice, RuntimeClass
from tenantry.world.sandbox import NO_SANDBOX, Sandbox, choose, is_known, mark

THERE = Sandbox(name="gvisor")


def runtime(name: str, handler: str, mark: str = "", deleted: str = "") -> RuntimeClass:
    """Return a RuntimeClass."""
    labels = {marks.SANDBOX: mark} if mark else {}
    return RuntimeClass(metadata=ObjectMeta(name=name, labels=labels, deletion_timestamp=deleted), handler=handler)


@pytest.mark.parametrize(
    ("asked", "classes", "chosen"),
    [
        ("", [], ""),
        ("", [runtime("plain", "runc")], ""),
        ("", [runtime("plain", "runc"), runtime("gvisor", "runsc")], "gvisor"),
        ("", [runtime("b", "kata-qemu"), runtime("a", "kata")], "a"),
        ("", [runtime("a", "runsc"), runtime("z", "mine", "true")], "z"),
        ("", [runtime("a", "runsc", "false")], ""),
        ("", [runtime("a", "runsc", deleted="2026-01-01T00:00:00Z")], ""),
        ("plain", [runtime("plain", "runc"), runtime("gvisor", "runsc")], "plain"),
        ("gone", [runtime("gvisor", "runsc")], ""),
    ],
)
def test_the_sandbox_is_the_one_that_is_named_labelled_or_known(
    asked: str, classes: list[RuntimeClass], chosen: str
) -> None:
    """E14: the order in which they are found makes no difference."""
    assert choose(asked, classes).name == chosen
    assert choose(asked, reversed(classes)).name == chosen


def test_a_handler_that_only_begins_like_a_sandbox_is_none() -> None:
    """E14: a name is a name as a whole, or up to a hyphen."""
    assert [name for name in ("runsc", "runsc-kvm", "kata-fc", "runscx", "katana", "runc", "") if is_known(name)] == [
        "runsc",
        "runsc-kvm",
        "kata-fc",
    ]


@pytest.mark.parametrize(
    ("tenant", "below", "sandbox", "marked"),
    [
        (None, [], NO_SANDBOX, ""),
        (None, [], THERE, "Preferred"),
        (None, [RuntimeChoice.SHARED], THERE, "Preferred"),
        (RuntimeChoice.SHARED, [], THERE, ""),
        (RuntimeChoice.SHARED, [None, RuntimeChoice.SANDBOXED, RuntimeChoice.SHARED], THERE, "Sandboxed"),
        (RuntimeChoice.SANDBOXED, [RuntimeChoice.SHARED], NO_SANDBOX, "Sandboxed"),
    ],
)
def test_who_is_below_only_tightens(
    tenant: RuntimeChoice | None, below: list[RuntimeChoice | None], sandbox: Sandbox, marked: str
) -> None:
    """E14: Shared below a sandboxed namespace has no effect, regardless of its author."""
    assert mark(tenant, below, sandbox) == marked
