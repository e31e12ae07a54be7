"""The warning about pods that a host refuses, as it is told and as it is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.policy.explain import hostwarning
from tenantry.policy.explain.refusal import Cause, Obstacle, lines, told_by

RULE = (
    "pods \"web\" is forbidden: ValidatingAdmissionPolicy 'tenantry-rules-pods' with binding 'tenantry-rules-pods'"
    " denied request: spec.containers[0].image is not allowed (rule images.allowed of Tenant 'acme'): use busybox"
)


def header(text: str) -> str:
    """Return a Warning header as API servers write it."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{quoted}"'


def test_the_rule_and_its_source_are_read() -> None:
    found = hostwarning.read(header(hostwarning.told(hostwarning.ITS_PODS, RULE)), "")
    assert found is not None
    (cause,) = told_by(found)
    assert (cause.by, cause.rule, cause.source) == (Obstacle.RULE, "images.allowed", "Tenant 'acme'")
    assert (cause.about, cause.fix) == ("each of its pods", "use busybox")


def test_what_no_rule_refuses_is_the_hosts_and_not_of_kubernetes_inside() -> None:
    found = hostwarning.read(header(hostwarning.told(hostwarning.THIS_POD, "spec.nodeName is set by the mirror")), "")
    assert found is not None
    assert list(lines([found])) == ["host: spec.nodeName is set by the mirror"]


@pytest.mark.parametrize(
    "text", ["", "299", '299 - "deprecated"', '299 - "the host refuses this pod', "the host refuses this pod: x"]
)
def test_other_warnings_are_no_causes(text: str) -> None:
    assert hostwarning.read(text, "") is None


@given(st.text())
def test_any_message_arrives_in_one_line(message: str) -> None:
    found = hostwarning.read(header(hostwarning.told(hostwarning.THIS_POD, message)), "its pod")
    assert found is None or isinstance(found, Cause)
    said = " ".join(message.split())
    if said and said.isprintable():
        assert found is not None
        assert found.about == "its pod"
