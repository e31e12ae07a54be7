"""Pods that are bound before they are mirrored: a mirror between two worlds without I/O."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenantry.mirror import cachedpods, podstatus
from tenantry.mirror.cachedpods import MOST_BYTES
from tenantry.mirror.places import NamespacePairs
from tenantry.mirror.things import COPIED, PODS
from testkit.mirroredpods import ADDRESSES, CONDITION, PAIRED, PAIRS, RUNNING, BoundPods, bound_pod, running, source

Json = dict[str, Any]

CONFIG_MAPS, SECRETS = COPIED["ConfigMap"], COPIED["Secret"]


# -- down ---------------------------------------------------------------------------------------------


def test_a_bound_pod_goes_down_under_its_name_with_what_it_names() -> None:
    pair = BoundPods()
    pair.put(source("ConfigMap", "settings", data={"a": "1"}))
    pair.put(source("Secret", "keys", type="Opaque", data={"k": "MQ=="}))
    pair.put(source("Secret", "other", type="Opaque", data={"k": "Mg=="}))
    names = [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "keys"}}]
    made = pair.put(bound_pod(containers=[{"name": "c", "image": "i", "envFrom": names}]))
    pair.settle()
    below = pair.below_of(PODS, "web")
    assert below["spec"]["containers"][0]["envFrom"] == names
    assert "nodeName" not in below["spec"]
    assert below["metadata"]["annotations"]["pair.example/uid"] == made["metadata"]["uid"]
    assert pair.below_of(CONFIG_MAPS, "settings")["data"] == {"a": "1"}
    assert pair.below_of(SECRETS, "keys")["data"] == {"k": "MQ=="}
    assert not pair.is_below(SECRETS, "other")
    assert pair.sources["Secret"].places == {"shop/keys"}
    assert pair.condition()["status"] == "True"
    revisions = pair.upper.revision, pair.lower.revision
    pair.settle(60.0)
    assert (pair.upper.revision, pair.lower.revision) == revisions


def test_a_source_follows_until_no_pod_names_it() -> None:
    pair = BoundPods()
    pair.put(source("ConfigMap", "settings", data={"a": "1"}))
    spec: Json = {"containers": [{"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": "settings"}}]}]}
    for name in ("web", "api"):
        pair.put(bound_pod(name, **spec))
    pair.settle()
    pair.upper.patch(CONFIG_MAPS, "shop/settings", {"data": {"a": "2"}})
    pair.settle()
    assert pair.below_of(CONFIG_MAPS, "settings")["data"] == {"a": "2"}
    pair.upper.delete(PODS, "shop/web")
    pair.settle()
    assert pair.is_below(CONFIG_MAPS, "settings")
    pair.upper.delete(PODS, "shop/api")
    pair.settle()
    assert not pair.is_below(CONFIG_MAPS, "settings")
    assert pair.sources["ConfigMap"].places == frozenset()


def test_a_secret_with_a_token_of_the_upper_side_stays_there() -> None:
    pair = BoundPods()
    pair.put(source("Secret", "token", type="kubernetes.io/service-account-token", data={"token": "eA=="}))
    pair.put(source("Secret", "plain", data={"key": "eA=="}))
    named = [{"secretRef": {"name": name, "optional": True}} for name in ("token", "plain")]
    spec: Json = {"containers": [{"name": "c", "image": "i", "envFrom": named}]}
    pair.put(bound_pod(**spec))
    pair.settle(5.0)
    assert pair.is_below(SECRETS, "plain")
    assert not pair.is_below(SECRETS, "token")


def test_a_source_that_is_not_listed_delays_its_pod() -> None:
    """A pod that starts without its ConfigMap is another pod."""
    pair = BoundPods()
    pair.put(source("ConfigMap", "settings", data={"a": "1"}))
    spec: Json = {"containers": [{"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": "settings"}}]}]}
    pair.put(bound_pod(**spec))
    pair.upper.unlisted = {"configmaps"}
    listed = pair.above.look
    pair.above.look = lambda *resources: listed(*(resources or [PODS])) if CONFIG_MAPS not in resources else None
    pair.settle()
    assert not pair.is_below(PODS, "web")
    assert pair.sources["ConfigMap"].places == {"shop/settings"}
    pair.upper.unlisted = set()
    pair.above.look = listed
    pair.settle(10.0)
    assert pair.is_below(PODS, "web")
    assert pair.below_of(CONFIG_MAPS, "settings")["data"] == {"a": "1"}


def test_a_pod_whose_token_stays_has_one_event() -> None:
    pair = BoundPods()
    token = {"serviceAccountToken": {"path": "token"}}
    pair.put(bound_pod(volumes=[{"name": "kube-api-access-a", "projected": {"sources": [token]}}]))
    pair.put(bound_pod("api"))
    pair.settle()
    pair.report(**RUNNING)
    pair.settle()
    assert pair.below_of(PODS, "web")["spec"]["volumes"] == []
    assert (pair.reasons(), pair.reasons("shop/api")) == (["TokenStays"], [])


def test_a_foreign_object_of_the_name_keeps_a_pod_back() -> None:
    """The pod would read the data of others."""
    pair = BoundPods()
    pair.lower.put_in(SECRETS, source("Secret", "keys", "shop-below", data={"k": "foreign"}))
    pair.put(source("Secret", "keys", data={"k": "MQ=="}))
    spec: Json = {"containers": [{"name": "c", "image": "i", "envFrom": [{"secretRef": {"name": "keys"}}]}]}
    pair.put(bound_pod(**spec))
    pair.settle()
    assert not pair.is_below(PODS, "web")
    assert (pair.condition()["status"], pair.condition()["reason"]) == ("False", "LowerRefused")
    assert pair.below_of(SECRETS, "keys")["data"] == {"k": "foreign"}
    pair.lower.delete(SECRETS, "shop-below/keys")
    pair.settle(60.0)
    assert pair.below_of(SECRETS, "keys")["data"] == {"k": "MQ=="}
    assert pair.is_below(PODS, "web")


def test_a_foreign_pod_of_the_name_is_left_alone() -> None:
    pair = BoundPods()
    labels = {"pair.example/owner": "u-other"}
    meta = {"name": "web", "namespace": "shop-below", "labels": labels}
    pair.lower.put_in(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}})
    pair.put(bound_pod())
    pair.settle()
    assert pair.below_of(PODS, "web")["metadata"]["labels"] == labels
    assert (pair.condition()["status"], pair.status()["phase"]) == ("False", "Pending")


# -- up -----------------------------------------------------------------------------------------------


def test_the_status_goes_up_without_addresses_and_the_binding_stays() -> None:
    pair = running()
    status = pair.status()
    assert not {*ADDRESSES} & set(status)
    assert status["containerStatuses"] == RUNNING["containerStatuses"]
    assert pair.condition("PodScheduled")["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert pair.condition("Ready")["status"] == "True"
    assert pair.condition()["reason"] == "Scheduled"
    assert pair.pod()["spec"]["nodeName"] == "east"


def test_a_lower_pod_without_a_node_leaves_the_upper_one_bound() -> None:
    pair = BoundPods()
    pair.put(bound_pod())
    pair.settle()
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: cpu"}
    pair.report(phase="Pending", conditions=[waits])
    pair.settle()
    assert pair.condition("PodScheduled")["status"] == "True"
    found = pair.condition()
    assert (found["status"], found["reason"], found["message"]) == ("True", "Unschedulable", "0/3 nodes: cpu")


def test_a_status_has_the_containers_of_the_spec_only_without_resources_and_with_short_texts() -> None:
    """L06: what a lower side reports as allocated would fill the quota of the upper one."""
    pair = running()
    large = {"cpu": "4000", "memory": "8Ti"}
    named = {**RUNNING["containerStatuses"][0], "allocatedResources": large, "resources": {"requests": large}}
    waits = {"waiting": {"reason": "Because", "message": "x" * 5000}}
    pair.report(
        message="y" * 5000,
        allocatedResources=large,
        containerStatuses=[{**named, "state": waits}, {**named, "name": "other"}, named],
        conditions=[{"type": f"example.com/{number}", "status": "True"} for number in range(1000)],
    )
    pair.settle()
    status = pair.status()
    (found,) = status["containerStatuses"]
    assert found["name"] == named["name"]
    assert not {"allocatedResources", "resources"} & {*status, *found}
    assert (len(status["message"]), len(found["state"]["waiting"]["message"])) == (1024, 1024)
    assert len(status["conditions"]) == 64


def test_a_closed_pair_sends_no_further_pods_and_follows_those_that_are_there() -> None:
    """L02: a namespace leaves; controllers replace what is evicted."""
    pair = running()
    pair.pair(PAIRS, closed=["shop"])
    pair.put(bound_pod("late"))
    pair.report(phase="Failed")
    pair.settle(600.0)
    assert not pair.is_below(PODS, "late")
    assert pair.status()["phase"] == "Failed"
    pair.pair(PAIRS)
    pair.settle(5.0)
    assert pair.is_below(PODS, "late")


def test_a_status_that_is_too_large_does_not_go_up() -> None:
    pair = running()
    pair.report(message="x" * MOST_BYTES)
    pair.settle()
    assert "message" not in pair.status()
    assert pair.status()["phase"] == "Running"


def test_an_ended_pod_does_not_run_again() -> None:
    """At most one pod runs for one uid, also if the lower side was restored from a backup."""
    pair = running()
    pair.report(phase="Succeeded")
    pair.settle()
    pair.report(phase="Running")
    pair.settle()
    assert pair.status()["phase"] == "Succeeded"
    assert not pair.is_below(PODS, "web")


def test_an_ended_pod_keeps_its_phase() -> None:
    pair = running()
    pair.report(phase="Succeeded")
    pair.settle()
    pair.report(phase="Failed", message="later")
    pair.settle()
    assert (pair.status()["phase"], pair.status().get("message")) == ("Succeeded", None)


# -- deletion -----------------------------------------------------------------------------------------


def test_a_deleted_pod_ends_when_its_lower_one_has_ended() -> None:
    pair = running()
    # A finalizer keeps the lower pod, as its grace does.
    pair.lower.patch(PODS, "shop-below/web", {"metadata": {"finalizers": ["example.com/grace"]}})
    pair.settle()
    pair.delete(grace=7)
    pair.settle()
    assert "deletionTimestamp" in pair.below_of(PODS, "web")["metadata"]
    pair.report(phase="Running", message="ends")
    pair.settle()
    assert pair.status()["message"] == "ends"
    pair.lower.patch(PODS, "shop-below/web", {"metadata": {"finalizers": None}})
    pair.settle()
    assert (PODS, "shop/web") not in pair.upper.objects


def test_a_pod_of_the_same_name_waits_for_the_end_of_the_one_before() -> None:
    pair = running()
    pair.lower.patch(PODS, "shop-below/web", {"metadata": {"finalizers": ["example.com/grace"]}})
    before = pair.below_of(PODS, "web")["metadata"]["uid"]
    pair.upper.delete(PODS, "shop/web")
    made = pair.put(bound_pod())
    pair.settle()
    assert pair.below_of(PODS, "web")["metadata"]["uid"] == before
    pair.lower.patch(PODS, "shop-below/web", {"metadata": {"finalizers": None}})
    pair.settle()
    assert pair.below_of(PODS, "web")["metadata"]["annotations"]["pair.example/uid"] == made["metadata"]["uid"]
    assert pair.status()["phase"] == "Pending"


def test_a_pod_that_is_evicted_below_fails_once_it_has_ended() -> None:
    pair = running()
    pair.evict_below()
    pair.settle()
    assert pair.status()["phase"] == "Running"
    pair.end_below()
    pair.settle()
    status = pair.status()
    assert (status["phase"], status["reason"]) == ("Failed", "LowerLost")
    assert pair.condition("Ready")["status"] == "False"
    assert status["containerStatuses"][0]["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert pair.reasons() == ["LowerLost"]
    pair.settle(600.0)
    assert not pair.is_below(PODS, "web")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_pod_never_gets_a_second_lower_one(*, is_restarted: bool) -> None:
    """It is recorded at once: no status of the lower side has come up yet."""
    pair = BoundPods()
    pair.put(bound_pod())
    pair.settle()
    pair.end_below()
    if is_restarted:
        pair.restart()
    pair.settle(600.0)
    assert not pair.is_below(PODS, "web")
    assert pair.status()["phase"] == "Failed"


def test_a_lower_pod_without_its_label_is_not_lost() -> None:
    """Its controller would start another one, while it runs."""
    pair = running()
    pair.lower.patch(PODS, "shop-below/web", {"metadata": {"labels": {"pair.example/owner": None}}})
    pair.settle()
    assert pair.status()["phase"] == "Running"


def test_a_pod_whose_lower_side_does_not_answer_is_not_lost() -> None:
    pair = running()
    pair.restart()
    pair.below_fault = "lost"
    pair.end_below()
    pair.settle(600.0)
    assert pair.status()["phase"] == "Running"
    pair.below_fault = "none"
    pair.settle(600.0)
    assert pair.status()["phase"] == "Failed"


def test_a_pod_of_a_place_that_is_not_listed_waits() -> None:
    """What is not known to be gone may run."""
    pair = running()
    pair.scope.set([])
    pair.settle(5.0)
    assert pair.status()["phase"] == "Running"
    pair.delete()
    pair.settle(5.0)
    assert (PODS, "shop/web") in pair.upper.objects
    pair.scope.set(pair.pairs.lowers)
    pair.settle(5.0)
    assert (PODS, "shop/web") not in pair.upper.objects


# -- refusals -----------------------------------------------------------------------------------------


def test_an_unfit_pod_fails_and_what_it_names_stays() -> None:
    pair = BoundPods()
    pair.put(source("Secret", "keys", data={"k": "MQ=="}))
    volumes = [{"name": "a", "secret": {"secretName": "keys"}}, {"name": "b", "hostPath": {"path": "/etc"}}]
    pair.put(bound_pod(volumes=volumes))
    pair.settle(600.0)
    status = pair.status()
    assert (status["phase"], status["reason"]) == ("Failed", "NotFit")
    assert status["message"].startswith("spec.volumes[1].hostPath may not be set")
    assert pair.reasons() == ["NotFit"]
    assert not pair.is_below(PODS, "web")
    assert not pair.is_below(SECRETS, "keys")
    assert pair.sources["Secret"].places == frozenset()


def test_a_pod_of_wrong_types_fails() -> None:
    pair = BoundPods()
    pair.put(bound_pod(hostname=7))
    pair.settle()
    assert (pair.status()["phase"], pair.status()["message"]) == ("Failed", "spec.hostname must be a string")


def test_a_pod_that_is_refused_waits_and_is_tried_again() -> None:
    pair = BoundPods()
    pair.lower.forbidden = {"pods": "exceeded quota: below"}
    pair.put(bound_pod())
    pair.settle()
    assert pair.status()["phase"] == "Pending"
    found = pair.condition()
    assert (found["status"], found["reason"], found["message"]) == ("False", "LowerRefused", "exceeded quota: below")
    assert pair.condition("PodScheduled")["status"] == "True"
    assert pair.reasons() == ["LowerRefused"]
    pair.lower.forbidden = {}
    pair.settle(11.0)
    assert pair.is_below(PODS, "web")
    assert pair.condition()["status"] == "True"
    assert pair.reasons() == ["LowerRefused"]


def test_a_refused_pod_is_deleted_at_once() -> None:
    pair = BoundPods()
    pair.lower.forbidden = {"pods": "exceeded quota: below"}
    pair.put(bound_pod())
    pair.settle()
    pair.delete()
    pair.settle()
    assert (PODS, "shop/web") not in pair.upper.objects


# -- pairs --------------------------------------------------------------------------------------------


def test_pods_of_other_namespaces_and_nodes_are_ignored() -> None:
    """DaemonSets of the upper side bind pods to every node."""
    pair = BoundPods()
    pair.put(source("ConfigMap", "proxy", "kube-system", data={"a": "1"}))
    volumes = [{"name": "a", "hostPath": {"path": "/"}}, {"name": "b", "configMap": {"name": "proxy"}}]
    unfit = pair.put(bound_pod("unfit", "kube-system", volumes=volumes))
    agent = pair.put(bound_pod("agent", "kube-system", volumes=volumes[1:]))
    other = pair.put(bound_pod("other", node="west"))
    pair.settle(600.0)
    assert (pair.pod("unfit", "kube-system"), pair.pod("agent", "kube-system")) == (unfit, agent)
    assert pair.pod("other") == other
    assert pair.sources["ConfigMap"].places == frozenset()
    assert [each["metadata"]["name"] for each in pair.lower.list(PODS)] == ["first"]


def test_a_new_pair_mirrors_what_is_there() -> None:
    pair = BoundPods(pairs={})
    pair.put(source("ConfigMap", "settings", data={"a": "1"}))
    spec: Json = {"containers": [{"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": "settings"}}]}]}
    pair.put(bound_pod(**spec))
    pair.settle(60.0)
    assert not pair.is_below(PODS, "web")
    pair.pair(PAIRS)
    pair.settle(5.0)
    assert pair.is_below(PODS, "web")
    assert pair.is_below(CONFIG_MAPS, "settings")


def test_a_pair_that_ends_leaves_both_pods_alone() -> None:
    pair = running()
    pair.pair({"stock": "stock-below"})
    pair.settle(600.0)
    before = pair.pod(), pair.below_of(PODS, "web")
    pair.report(phase="Failed")
    pair.settle(600.0)
    assert pair.pod() == before[0]
    pair.pair(PAIRS)
    pair.settle(5.0)
    assert pair.status()["phase"] == "Failed"


@pytest.mark.parametrize("is_scoped", [False, True])
def test_a_pair_that_returns_is_brought_in_step(*, is_scoped: bool) -> None:
    pair = BoundPods(is_scoped=is_scoped)
    pair.put(source("ConfigMap", "settings", data={"a": "1"}))
    spec: Json = {"containers": [{"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": "settings"}}]}]}
    for name in ("web", "gone"):
        pair.put(bound_pod(name, **spec))
    pair.settle()
    pair.pair({})
    pair.upper.patch(CONFIG_MAPS, "shop/settings", {"data": {"a": "2"}})
    pair.upper.delete(PODS, "shop/gone")
    pair.settle()
    assert pair.is_below(PODS, "gone")
    assert pair.below_of(CONFIG_MAPS, "settings")["data"] == {"a": "1"}
    pair.pair(PAIRS)
    pair.settle(5.0)
    assert pair.is_below(PODS, "web")
    assert not pair.is_below(PODS, "gone")
    assert pair.below_of(CONFIG_MAPS, "settings")["data"] == {"a": "2"}


def test_a_pod_whose_namespace_gets_another_lower_one_is_lost() -> None:
    pair = running()
    pair.pair({"shop": "stock-below"})
    pair.settle(5.0)
    assert (pair.status()["phase"], pair.status()["reason"]) == ("Failed", "LowerLost")
    assert not pair.is_below(PODS, "web", "stock-below")


def test_pairs_are_one_to_one() -> None:
    pairs = NamespacePairs({"a": "x", "b": "y"})
    assert pairs.set({"a": "x", "b": "z", "c": "y"}) == {"b", "c"}
    assert (pairs.lower("b"), pairs.upper("y"), pairs.lower("d"), pairs.upper("d")) == ("z", "c", "", "")
    for wrong in ({"a": "x", "b": "x"}, {"a": ""}, {"": "x"}):
        with pytest.raises(ValueError, match="lower one of its own"):
            pairs.set(wrong)
    assert pairs.lowers == {"x", "y", "z"}


def test_a_mark_below_cannot_name_another_upper_pod() -> None:
    """Users of the lower side write marks; the place and the name are what counts."""
    pair = running()
    pair.put(bound_pod("victim", "stock"))
    pair.settle()
    marks = {"pair.example/namespace": "stock", "pair.example/name": "victim"}
    pair.lower.patch(PODS, "shop-below/web", {"metadata": {"annotations": marks}, "status": {"phase": "Failed"}})
    pair.settle()
    assert pair.pod("victim", "stock")["status"]["phase"] == "Pending"
    assert pair.status()["phase"] == "Failed"


def test_the_head_of_a_large_pod_records_its_lower_one() -> None:
    large = running().pod()
    large["metadata"]["annotations"] = {"note": "x" * MOST_BYTES}
    found = cachedpods.decode(msgspec.Raw(msgspec.json.encode(large)), PAIRED.prefix)
    assert not found.is_whole
    known = {"conditions": found.status["conditions"]}
    assert podstatus.is_recorded(known, PAIRED)
    assert not podstatus.is_recorded({"phase": "Pending", "conditions": []}, PAIRED)


def test_the_type_of_the_condition_has_the_domain_of_the_marks() -> None:
    assert BoundPods().profile.mark("Mirrored") == CONDITION


# -- silence ------------------------------------------------------------------------------------------


def _ready(pair: BoundPods) -> tuple[str, str]:
    found = pair.condition("Ready")
    return found["status"], found.get("reason", "")


def test_a_pod_of_a_silent_lower_side_is_not_ready_and_is_again_as_the_lower_one_is() -> None:
    pair = running()
    assert _ready(pair) == ("True", "")
    below = pair.below_of(PODS, "web")
    pair.is_silent = True
    pair.mirror.look_again(pair.pairs.uppers)
    pair.settle()
    assert _ready(pair) == ("False", "LowerSilent")
    revision = pair.upper.revision
    pair.settle(60.0)
    # Once, and nothing reaches the lower side.
    assert (pair.upper.revision, pair.below_of(PODS, "web")) == (revision, below)
    pair.is_silent = False
    pair.mirror.look_again(pair.pairs.uppers)
    pair.settle()
    assert _ready(pair) == ("True", "")
