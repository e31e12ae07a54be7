"""A batch that an older operator wrote ahead is finished by this one: the objects are as that operator left them."""

from __future__ import annotations

from typing import cast

import msgspec

from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.controllers.quota.desired import plan
from tenantry.controllers.quota.gather import QuotaInputs
from tenantry.controllers.quota.objects import observed_tenant_quota, share_quota
from tenantry.engine.observed import ObservedQuota, observe
from tenantry.engine.plan import DirectWrite, Read
from tenantry.world.shares.amounts import ObservedTenantQuota, ShareQuota, ShareTarget
from tenantry.world.shares.batches import BatchPlanner, UpdateQuota
from tenantry.world.shares.division import Division
from tenantry.world.shares.share import ShareRequest, TreeNamespace
from tenantry.world.shares.tree import Tree
from testkit.worlds import tenant

TENANT_QUOTA = b"""
{
  "apiVersion": "tenantry.dev/v1alpha1",
  "kind": "TenantResourceQuota",
  "metadata": {
    "name": "acme", "uid": "5b5c1f3e", "resourceVersion": "812", "generation": 1,
    "labels": {"app.kubernetes.io/managed-by": "tenantry", "tenantry.dev/tenant": "acme"},
    "ownerReferences": [
      {"apiVersion": "tenantry.dev/v1alpha1", "kind": "Tenant", "name": "acme", "uid": "t1", "controller": true}
    ]
  },
  "spec": {"adjustments": []},
  "status": {
    "observedGeneration": 1,
    "hard": {"requests.cpu": "10", "requests.memory": "20Gi"},
    "used": {"requests.cpu": "2", "requests.memory": "1Gi"},
    "batch": {
      "number": 790,
      "counted": true,
      "targets": [
        {"namespace": "acme", "uid": "core", "hard": {"requests.cpu": "6", "requests.memory": "12Gi"}},
        {"namespace": "lab-1", "uid": "lab", "hard": {"requests.cpu": "4", "requests.memory": "8Gi"}}
      ]
    },
    "tree": [{"namespace": "acme", "depth": 0, "assigned": {"requests.cpu": "10"}, "used": {}, "free": {}}],
    "omitted": 0,
    "conditions": [
      {"type": "Ready", "status": "False", "reason": "Progressing", "message": "shares are on their way",
       "lastTransitionTime": "2025-01-01T00:00:00Z", "observedGeneration": 1}
    ]
  }
}
"""

QUOTA = """
{{
  "apiVersion": "v1", "kind": "ResourceQuota",
  "metadata": {{"name": "tenantry-quota", "namespace": "{namespace}", "uid": "q-{namespace}",
    "resourceVersion": "{version}", "annotations": {{"tenantry.dev/quota-batch": "{mark}"}}}},
  "spec": {{"hard": {{"requests.cpu": "{cpu}", "requests.memory": "{memory}"}}}},
  "status": {{"hard": {{"requests.cpu": "{cpu}", "requests.memory": "{memory}"}},
    "used": {{"requests.cpu": "0", "requests.memory": "0"}}}}
}}
"""


def quota(namespace: str, *, mark: str, cpu: str, memory: str, version: int) -> ShareQuota:
    text = QUOTA.format(namespace=namespace, mark=mark, cpu=cpu, memory=memory, version=version)
    return share_quota(cast("ObservedQuota", observe(ResourceQuota.resource, text.encode())))


def planner(written: ObservedTenantQuota, *quotas: tuple[str, ShareQuota]) -> BatchPlanner:
    """Return the planner of an operator that has just read the tenant, and did not write the batch."""
    tree = Tree({"requests.cpu": 10_000, "requests.memory": 20 * 1024**3 * 1000})
    for name, each in quotas:
        tree.put_quota(name, each)
    tree.put_namespace(TreeNamespace(name="acme", uid="core"))
    tree.put_namespace(TreeNamespace(name="lab-1", uid="lab", key="sub", parent="acme"))
    hard = {"requests.cpu": 4000, "requests.memory": 8 * 1024**3 * 1000}
    tree.put_request(ShareRequest(uid="sub", name="lab", parent="acme", hard=hard))
    Division(tree).start(written.targets)
    return BatchPlanner(tree, written.number)


def test_a_batch_in_the_status_of_an_older_operator_is_read() -> None:
    """E09: the number and the targets decide which write comes next."""
    read = observed_tenant_quota(msgspec.json.decode(TENANT_QUOTA, type=TenantResourceQuota))
    assert read == ObservedTenantQuota(
        version=812,
        hard={"requests.cpu": 10_000, "requests.memory": 20 * 1024**3 * 1000},
        number=790,
        targets=(
            ShareTarget(
                namespace="acme", uid="core", hard={"requests.cpu": 6000, "requests.memory": 12 * 1024**3 * 1000}
            ),
            ShareTarget(
                namespace="lab-1", uid="lab", hard={"requests.cpu": 4000, "requests.memory": 8 * 1024**3 * 1000}
            ),
        ),
        assigned={"acme": {"requests.cpu": 10_000}},
    )


def test_a_batch_of_an_older_operator_is_finished() -> None:
    """E09: it had shrunk the parent's ResourceQuota and created the child's, and was stopped before that grew."""
    written = observed_tenant_quota(msgspec.json.decode(TENANT_QUOTA, type=TenantResourceQuota))
    parent = quota("acme", mark="790", cpu="6", memory="12Gi", version=801)
    child = quota("lab-1", mark="790/shrink", cpu="0", memory="0", version=803)
    (grow,) = planner(written, ("acme", parent), ("lab-1", child)).steps(written)
    assert grow == UpdateQuota("lab-1", "lab", child, written.targets[1].hard, 790, final=True, grows=True)


def test_a_batch_of_an_older_operator_that_had_not_begun_shrinks_first() -> None:
    """E09: it had only written the status."""
    written = observed_tenant_quota(msgspec.json.decode(TENANT_QUOTA, type=TenantResourceQuota))
    parent = quota("acme", mark="640", cpu="10", memory="20Gi", version=650)
    child = quota("lab-1", mark="640/shrink", cpu="0", memory="0", version=785)
    (shrink,) = planner(written, ("acme", parent), ("lab-1", child)).steps(written)
    assert shrink == UpdateQuota("acme", "core", parent, written.targets[0].hard, 790, final=True, grows=False)


def test_a_status_without_a_batch_says_that_the_sums_are_unknown() -> None:
    """E09: a TenantResourceQuota that was just created, or restored without its status."""
    bare = b'{"metadata": {"name": "acme", "resourceVersion": "7"}, "spec": {}}'
    read = observed_tenant_quota(msgspec.json.decode(bare, type=TenantResourceQuota))
    assert read == ObservedTenantQuota(version=7, hard=None)


def inputs(verified: dict[str, str], *names: str) -> QuotaInputs:
    """Return what an operator knows when the parent has shrunk and the named children are to grow."""
    written = msgspec.json.decode(TENANT_QUOTA, type=TenantResourceQuota)
    (core, lab) = written.status.batch.targets
    each = {"requests.cpu": "1", "requests.memory": "1Gi"}
    targets = [msgspec.structs.replace(lab, namespace=name, uid=f"ns-{name}", hard=each) for name in names]
    batch = msgspec.structs.replace(written.status.batch, targets=(core, *targets))
    status = msgspec.structs.replace(written.status, batch=batch)
    written = msgspec.structs.replace(written, status=status)
    tree = Tree({"requests.cpu": 16_000, "requests.memory": 32 * 1024**3 * 1000})
    tree.put_namespace(TreeNamespace(name="acme", uid="core"))
    tree.put_quota("acme", quota("acme", mark="790", cpu="6", memory="12Gi", version=801))
    for name in names:
        tree.put_quota(name, quota(name, mark="790/shrink", cpu="0", memory="0", version=803))
        tree.put_namespace(TreeNamespace(name=name, uid=f"ns-{name}", key=name, parent="acme"))
        hard = {"requests.cpu": 1000, "requests.memory": 1024**3 * 1000}
        tree.put_request(ShareRequest(uid=name, name=name, parent="acme", hard=hard))
    Division(tree).start(observed_tenant_quota(written).targets)
    owner = tenant("acme", uid="t1", quota={"requests.cpu": 16, "requests.memory": "32Gi"})
    return QuotaInputs(
        tenant=owner,
        lookup=lambda _, __: None,
        tenant_quota=written,
        planner=BatchPlanner(tree, 790),
        verified=verified,
    )


def test_a_share_grows_after_its_namespace_was_read_and_not_before() -> None:
    """E09: the name may belong to a later namespace by now, which would get the share of the earlier one."""
    found = plan(inputs({}, "lab-1"))
    assert (found.reads, found.writes) == ((Read(resource=Namespace.resource, name="lab-1"),), ())
    (write,) = plan(inputs({"q-lab-1": "ns-lab-1"}, "lab-1")).writes
    assert isinstance(write, DirectWrite)
    assert isinstance(write.request.body, dict)
    assert write.request.body["metadata"]["resourceVersion"] == "803"
    assert write.request.body["spec"]["hard"] == {"requests.cpu": "1", "requests.memory": "1Gi"}
    assert plan(inputs({"q-lab-1": "ns-earlier"}, "lab-1")).writes == ()


def test_many_namespaces_are_read_in_one_request() -> None:
    """E09: and a share that is known to be in its namespace waits for none of them."""
    names = [f"lab-{number}" for number in range(10)]
    found = plan(inputs({"q-lab-0": "ns-lab-0"}, *names))
    (read,) = found.reads
    assert (read.name, read.resource, bool(read.selectors)) == ("", Namespace.resource, True)
    (write,) = found.writes
    assert isinstance(write, DirectWrite)
    assert write.request.namespace == "lab-0"
