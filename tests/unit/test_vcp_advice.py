"""What is tried out on the host before a workload inside is stored (H02)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tenantry.controllers.virtualcontrolplane.advice import RULES, tried_pod
from tenantry.hosting.admission import AdmissionRequest
from tenantry.hosting.plane import AdmissionOperation

Json = dict[str, Any]
TEMPLATE: Json = {"metadata": {"name": "other", "labels": {"app": "web"}}, "spec": {"containers": [{"image": "a"}]}}


def asked(group: str, resource: str, spec: object, old: object = None) -> AdmissionRequest:
    meta = {"name": "web", "namespace": "shop", "labels": {"own": "yes"}}
    return AdmissionRequest(
        operation=AdmissionOperation.CREATE if old is None else AdmissionOperation.UPDATE,
        group=group,
        version="v1",
        resource=resource,
        namespace="shop",
        name="web",
        user="ann",
        is_dry_run=False,
        object={"metadata": meta, "spec": spec},
        old=None if old is None else {"metadata": meta, "spec": old},
    )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.resource)
def test_the_pod_of_a_workload_has_its_name_and_the_labels_of_its_template(rule: Any) -> None:  # noqa: ANN401
    """Every kind that an API server asks about has a pod."""
    spec: Json = {"template": TEMPLATE}
    if rule.resource == "cronjobs":
        spec = {"jobTemplate": {"spec": spec}}
    if rule.resource == "pods":
        spec = TEMPLATE["spec"]
    pod = tried_pod(asked(rule.group, rule.resource, spec))
    assert pod is not None
    labels = {"own": "yes"} if rule.resource == "pods" else {"app": "web"}
    assert pod["metadata"] == {"name": "web", "namespace": "shop", "uid": str(UUID(int=0)), "labels": labels}
    assert pod["spec"] == TEMPLATE["spec"]


def test_a_change_that_leaves_the_template_is_not_tried() -> None:
    """Scaling must not cost a request to the host."""
    before: Json = {"replicas": 1, "template": TEMPLATE}
    assert tried_pod(asked("apps", "deployments", {**before, "replicas": 5}, before)) is None
    changed: Json = {**TEMPLATE, "spec": {"containers": [{"image": "b"}]}}
    pod = tried_pod(asked("apps", "deployments", {**before, "template": changed}, before))
    assert pod is not None
    assert pod["spec"] == changed["spec"]
