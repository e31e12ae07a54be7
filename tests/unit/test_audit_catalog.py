"""The checks as data: what an audit may do, and what it has to cover."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tenantry.audit.catalog import CHECKS
from tenantry.audit.check import (
    Attempt,
    AttemptResponse,
    AuditCheck,
    NotApplicable,
    Observation,
    Severity,
    WithoutTenantry,
)
from tenantry.audit.context import AuditContext, ClaimedVolume, ManagedObject, OtherNamespace
from testkit.unprotected import ELSEWHERE

PLACE = AuditContext(
    namespace="acme",
    user="alice",
    tenant="acme",
    suffix="0f3a",
    image="registry.example/pause",
    others=(OtherNamespace(name="kube-system", is_system=True), OtherNamespace(name="rival", labels={"a": "b"})),
    other_tenants=("rival",),
    nodes=("n1",),
    storage_classes={"fast": "Delete", "kept": "Retain"},
    runtime_classes={"gvisor": True, "plain": False},
    priority_classes=("high",),
    hosts=("shop.example",),
    levels={"u": "tenantry-tenants"},
    pods=("web",),
    made=(ManagedObject(path="/api/v1/namespaces/acme/resourcequotas/tenantry-quota", told="ResourceQuota"),),
    corefile=".:53 {\n    kubernetes cluster.local\n}\n",
    volumes=(ClaimedVolume(name="pv", reclaim_policy="Retain", claim="acme/data"),),
    bindings={"pv": "policy tenantry-existing-volumes"},
    unguarded=("VirtualControlPlane 'prod': no",),
    installation=("ClusterRole 'tenantry-admin' differs in rules",),
)
REVIEWS = ("selfsubjectaccessreviews", "selfsubjectrulesreviews")
SEEN = ("TNT-NET-023", "TNT-OWN-011", "TNT-OWN-012", "TNT-STO-006")
"""What an administrator sees already."""

MTB = {
    "block_access_to_cluster_resources",
    "block_add_capabilities",
    "block_multitenant_resources",
    "block_ns_quota",
    "block_other_tenant_resources",
    "block_privilege_escalation",
    "block_privileged_containers",
    "block_role_privilege_escalation",
    "block_use_of_bind_mounts",
    "block_use_of_host_ipc",
    "block_use_of_host_networking_and_ports",
    "block_use_of_host_path",
    "block_use_of_host_pid",
    "block_use_of_nodeport_services",
    "configure_ns_object_quota",
    "configure_ns_quotas",
    "create_network_policies",
    "create_role_bindings",
    "default_deny_network_connections_across_tenants",
    "require_always_pull_image",
    "require_run_as_non_root_user",
}
"""Its checks, as the folder test/benchmarks of its last version names them."""


def requests(check: AuditCheck) -> list[Attempt]:
    """Return everything that a check may send."""
    attempts = check.attempts(PLACE)
    assert not isinstance(attempts, NotApplicable), (
        f"{check.id} tries nothing where everything is there: {attempts.why}"
    )
    if isinstance(attempts, Observation):
        assert attempts.wrong, f"{check.id} finds nothing wrong with what is"
        return []
    return [*attempts, *([check.control(PLACE)] if check.control else [])]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_an_attempt_does_no_harm_if_it_goes_through(check: AuditCheck) -> None:
    """X06: every request is a read, a review of one's own rights, or a dry run."""
    for attempt in requests(check):
        is_review = attempt.method == "POST" and attempt.path.endswith(REVIEWS)
        # exec and the like are asked with GET of a pod that is not there.
        is_read = attempt.method == "GET" and ("/exec" not in attempt.path or PLACE.name in attempt.path)
        assert is_read or is_review or attempt.query.get("dryRun") == "All", attempt.what


def test_ids_are_of_one_check_each_and_name_its_area() -> None:
    ids = [check.id for check in CHECKS]
    assert len(set(ids)) == len(ids)
    prefixes = {check.area: check.id.split("-")[1] for check in CHECKS}
    assert all(check.id.split("-")[1] == prefixes[check.area] for check in CHECKS)
    assert len(set(prefixes.values())) == len(prefixes)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_a_check_says_all_that_a_reader_needs(check: AuditCheck) -> None:
    for text in (check.tries, check.proves, check.fix):
        assert text.endswith((".", "`kubectl get clusterrolebindings,rolebindings -A -o wide` shows them.")), text
    assert len(check.title) <= 64
    assert requests(check) or check.probe or check.id in SEEN


def test_everything_that_kubectl_mtb_checked_is_there() -> None:
    """X06: each of its benchmarks is covered by a check that names it."""
    covered = {name for check in CHECKS for name in check.benchmark.split(", ") if name}
    assert covered >= MTB


def test_what_kubernetes_leaves_open_has_a_control_or_looks_itself() -> None:
    """X06: a refusal is only taken as one where the honest request of the kind goes through."""
    for check in CHECKS:
        if check.alone is WithoutTenantry.OPEN and check.control is None:
            attempts = check.attempts(PLACE)
            assert not isinstance(attempts, NotApplicable | Observation)
            assert all(each.judge is not None or "ingresses" in each.path for each in attempts), check.id


def test_all_severities_are_used() -> None:
    assert {check.severity for check in CHECKS} == set(Severity)


def test_a_claim_with_data_of_another_namespace_fails_its_check() -> None:
    """X06: the API server drops the namespace unless a feature gate lets it pass."""
    (check,) = [each for each in CHECKS if each.id == "TNT-STO-007"]
    (attempt,) = requests(check)[:1]
    assert attempt.judge is not None
    source = {"kind": "PersistentVolumeClaim", "name": "data", "namespace": "kube-system"}
    assert attempt.judge(AttemptResponse({"spec": {"dataSourceRef": source}}, {})) != ""
    assert attempt.judge(AttemptResponse({"spec": {"dataSourceRef": source | {"namespace": ""}}}, {})) == ""


def test_a_volume_that_is_bound_to_a_new_claim_fails_its_check() -> None:
    """X06: the claims are refused, and the binding is not."""
    (check,) = [each for each in CHECKS if each.id == "TNT-STO-003"]
    seen = check.attempts(msgspec.structs.replace(PLACE, bindings={"pv": ""}))
    assert isinstance(seen, Observation)
    assert "PersistentVolume pv is bound" in seen.wrong
    assert isinstance(check.attempts(msgspec.structs.replace(PLACE, bindings=None)), NotApplicable)


@pytest.mark.parametrize("test", sorted(set(ELSEWHERE.values())))
def test_each_removal_that_is_elsewhere_is_there(test: str) -> None:
    file, _, function = test.partition("::")
    assert f"def {function}(" in (Path(__file__).parent / file).read_text()
