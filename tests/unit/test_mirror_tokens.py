"""Tokens of the upper side for bound pods of another cluster: a mirror between two worlds without I/O."""

from __future__ import annotations

import base64
import datetime as dt
from typing import Any

from tenantry.api.errors import NotFound
from tenantry.mirror.podlimits import PodLimits
from tenantry.mirror.things import COPIED, PODS
from testkit.mirroredpods import BoundPods, bound_pod, source

Json = dict[str, Any]

SECRETS = COPIED["Secret"]
RENEW = "pair.example/renew"
ALLOWING = PodLimits(audiences=("vault", "bank"), allowed_by="the settings")


def allowing(limits: PodLimits = ALLOWING) -> BoundPods:
    """Return two worlds with a mirror that sends tokens of audiences."""
    pair = BoundPods()
    pair.limits = limits
    pair.restart()
    return pair


def keyed(name: str = "web", *audiences: str) -> Json:
    """Return a pod with tokens of audiences."""
    sources = [{"serviceAccountToken": {"path": each, "audience": each}} for each in audiences or ("vault",)]
    return bound_pod(name, volumes=[{"name": "keys", "projected": {"sources": sources}}])


def secret_of(pair: BoundPods, name: str = "web") -> Json:
    """Return the Secret with the tokens of a pod."""
    return pair.below_of(SECRETS, pair.profile.lower_name("Token", "shop", name))


def has_tokens(pair: BoundPods, name: str = "web") -> bool:
    """Return whether there is such a Secret."""
    try:
        secret_of(pair, name)
    except NotFound:
        return False
    return True


def notes(pair: BoundPods) -> list[str]:
    """Return the events about upper pods."""
    return [note for _, _, _, note in pair.above.said]


def test_the_tokens_of_a_pod_are_bound_to_it_and_end_with_the_lower_one() -> None:
    pair = allowing()
    made = pair.put(keyed("web", "vault", "bank"))
    pair.settle()
    asked = pair.upper.requested
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": made["metadata"]["uid"]}
    assert [(key, spec["audiences"], spec["boundObjectRef"]) for key, spec in asked] == [
        ("shop/default", ["vault"], bound),
        ("shop/default", ["bank"], bound),
    ]
    assert {spec["expirationSeconds"] for _, spec in asked} == {600}
    secret = secret_of(pair)
    assert [base64.b64decode(each) for each in secret["data"].values()] == [b"token-1-vault", b"token-2-bank"]
    below = pair.below_of(PODS, "web")
    assert [each["uid"] for each in secret["metadata"]["ownerReferences"]] == [below["metadata"]["uid"]]
    mounted = [each["secret"]["name"] for each in below["spec"]["volumes"][0]["projected"]["sources"]]
    assert set(mounted) == {secret["metadata"]["name"]}
    revisions = pair.upper.revision, pair.lower.revision
    pair.settle(60.0)
    assert (pair.upper.revision, pair.lower.revision) == revisions


def test_tokens_are_renewed_before_they_expire() -> None:
    pair = allowing()
    pair.put(keyed())
    pair.settle()
    before = secret_of(pair)
    due = dt.datetime.fromisoformat(before["metadata"]["annotations"][RENEW])
    left = (due - pair.above.clock.now()).total_seconds()
    assert 0 < left < 600 - 60
    pair.settle(left + 1)
    assert secret_of(pair)["data"] != before["data"]


def test_a_token_that_the_upper_api_server_accepts_never_goes_down() -> None:
    """An API server that is started again may have other audiences than those that the limits were made with."""
    pair = allowing()
    pair.upper.audiences.add("bank")
    pair.put(keyed("web", "vault", "bank"))
    pair.settle()
    assert len(pair.upper.requested) == 2
    assert not has_tokens(pair)
    assert any("accepts the audience 'bank'" in each for each in notes(pair))
    assert b"token-" not in repr(list(pair.lower.objects.values())).encode()


def test_a_renewal_stops_when_the_upper_api_server_accepts_the_audience() -> None:
    pair = allowing()
    pair.put(keyed())
    pair.settle()
    before = secret_of(pair)
    pair.upper.audiences.add("vault")
    pair.settle(500.0)
    assert secret_of(pair)["data"] == before["data"]
    assert any("accepts the audience 'vault'" in each for each in notes(pair))


def test_a_pod_whose_audience_is_not_allowed_fails_and_no_token_is_requested() -> None:
    pair = allowing()
    pair.put(source("Secret", "keys", data={"k": "MQ=="}))
    bad = keyed("web", "vault", "cashier")
    bad["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "keys"}}]
    pair.put(bad)
    pair.settle()
    assert pair.status()["reason"] == "NotFit"
    assert "sources[1].serviceAccountToken.audience" in pair.status()["message"]
    assert pair.upper.requested == []
    assert not pair.is_below(SECRETS, "keys")


def test_a_permission_that_ends_stops_the_tokens_of_a_pod_and_leaves_it_what_it_names() -> None:
    pair = allowing()
    pair.put(source("Secret", "keys", data={"k": "MQ=="}))
    pod = keyed()
    pod["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "keys"}}]
    pair.put(pod)
    pair.settle()
    pair.limits = PodLimits()
    pair.restart()
    count = len(pair.upper.requested)
    pair.settle(7200.0)
    assert len(pair.upper.requested) == count
    assert pair.is_below(PODS, "web")
    assert pair.is_below(SECRETS, "keys")
    pair.report(phase="Running")
    pair.settle()
    assert pair.status()["phase"] == "Running"


def test_a_secret_of_the_user_with_the_name_of_the_tokens_takes_nothing_and_is_not_replaced() -> None:
    """Users may compute the name: it has no secret in it."""
    pair = allowing()
    name = pair.profile.lower_name("Token", "shop", "web")
    pair.put(source("Secret", name, data={"k": "MQ=="}))
    reader = bound_pod("reader", volumes=[{"name": "a", "secret": {"secretName": name}}])
    pair.put(reader)
    pair.settle()
    assert pair.below_of(SECRETS, name)["data"] == {"k": "MQ=="}
    pair.put(keyed())
    pair.settle()
    assert pair.below_of(SECRETS, name)["data"] == {"k": "MQ=="}
    assert any("give that Secret another name" in each for each in notes(pair))
    pair.upper.delete(PODS, "shop/reader")
    pair.upper.delete(SECRETS, f"shop/{name}")
    pair.settle()
    pair.settle(60.0)
    assert RENEW in secret_of(pair)["metadata"]["annotations"]
    # The other way round: the pod does not start with the tokens of another one.
    pair.put(source("Secret", name, data={"k": "MQ=="}))
    pair.put(bound_pod("late", volumes=[{"name": "a", "secret": {"secretName": name}}]))
    pair.settle()
    assert not pair.is_below(PODS, "late")
    assert RENEW in secret_of(pair)["metadata"]["annotations"]
