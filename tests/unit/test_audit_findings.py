"""What pods of an audit have seen, and which verdicts come of it."""

from __future__ import annotations

import msgspec
import pytest

from tenantry.audit import verdict
from tenantry.audit.catalog import CHECKS
from tenantry.audit.check import AuditCheck, CheckResult, NotApplicable, Verdict
from tenantry.audit.checks import probes
from tenantry.audit.checks.probes import NETWORK, PODS, QUOTA, STORAGE, capabilities
from tenantry.audit.context import AuditContext, AuditNode
from tenantry.audit.probe import objects
from tenantry.audit.probe.findings import (
    WITHOUT_TOKEN,
    ContainerView,
    MemoryTest,
    ProbeAnswer,
    ProbeFailure,
    ProbeFindings,
    ProbeReport,
    ProbeRun,
    VolumeContent,
    nothing,
)
from tenantry.audit.probe.objects import ProbeImage, ServerAddress

PLACE = AuditContext(
    namespace="acme",
    user="alice",
    tenant="acme",
    suffix="0f3a",
    image="registry.example/pause",
    real_nodes=(
        AuditNode(name="n1", addresses=("10.0.0.1",), boot_id="b1"),
        AuditNode(name="n2", addresses=("fd00::2",), boot_id="b2"),
    ),
)
WORD = PLACE.name
SERVERS = [
    ServerAddress(
        name=name, pod=f"10.1.0.{number}", node="n1", service=f"10.96.0.{number}", dns=f"{name}.x.svc.cluster.local"
    )
    for number, name in enumerate(("open", "closed", "peer"), start=1)
]
SERVERS.append(msgspec.structs.replace(SERVERS[1], pod="10.1.1.1", node="n2"))
ATTEMPTS = objects.attempts(PLACE, SERVERS, WORD)
TOLD = {each.id: each.told for each in ATTEMPTS}
OWN = {"peer-address", "peer-service", "peer-name"}
PUBLIC = {*TOLD} - {"peer-address", "peer-service", "metadata"}
"""What a pod without policies can do, in a cluster that resolves every name and has no metadata service."""
CLOSED = ContainerView(uid=65534, cap_bnd="0000000000000000", no_new_privs="1", seccomp="2", boot_id="b1")
USUAL = "00000000a80425fb"
"""What containerd gives."""


def run(
    works: set[str], inside: ContainerView = CLOSED, *, node: str = "n1", said: dict[str, str] | None = None
) -> ProbeRun:
    """Return a pod for which these attempts work."""
    words = said or {}
    attempts = {each: ProbeAnswer(ok=each in works, said=words.get(each, "i/o timeout")) for each in TOLD}
    return ProbeRun(report=ProbeReport(attempts=attempts, inside=inside), node=node)


def found(own: ProbeRun | ProbeFailure, other: ProbeRun | ProbeFailure | None = None, **more: object) -> ProbeFindings:
    """Return findings of the two pods."""
    findings = ProbeFindings(own=own, other=run(PUBLIC) if other is None else other, told=TOLD)
    return msgspec.structs.replace(findings, **more)


def check(id_: str) -> AuditCheck:
    """Return a check by its id."""
    return next(each for each in (*NETWORK, *PODS, *QUOTA, *STORAGE) if each.id == f"TNT-{id_}")


def judged(id_: str, findings: ProbeFindings, place: AuditContext = PLACE) -> CheckResult:
    """Return what comes of a check."""
    asked = check(id_)
    assert asked.probe is not None
    tried = asked.probe(place, findings)
    if isinstance(tried, NotApplicable):
        return verdict.result(asked, Verdict.SKIPPED, tried.why)
    return verdict.of_check(asked, tried)


ISOLATION = ["NET-020", "NET-021", "NET-022", "NET-024", "NET-025"]
OPENED = {
    "NET-020": "closed-address-n2",
    "NET-021": "node-own",
    "NET-022": "closed-reverse",
    "NET-025": "open-address",
}


@pytest.mark.parametrize("id_", ISOLATION)
def test_what_others_can_and_the_tenant_cannot_is_refused(id_: str) -> None:
    """X06, H06: with its own pods within reach, and another program at the target."""
    result = judged(id_, found(run(OWN)))
    assert result.verdict is Verdict.PASSED
    assert result.by == ("DNS" if id_ == "NET-022" else "the network")


@pytest.mark.parametrize(("id_", "opened"), list(OPENED.items()))
def test_what_goes_through_fails_the_check_and_is_named(id_: str, opened: str) -> None:
    """X06: one way is enough, even where nothing else of the network works."""
    for works in (OWN | {opened}, {opened}):
        result = judged(id_, found(run(works)))
        assert (result.verdict, TOLD[opened] in result.message) == (Verdict.FAILED, True)


@pytest.mark.parametrize("id_", ISOLATION)
def test_a_broken_network_passes_no_check(id_: str) -> None:
    """X06: neither if the tenant's own pods do not reach each other, nor if the target does not answer."""
    assert judged(id_, found(run(set()), run(set()))).verdict is Verdict.SKIPPED
    silent = judged(id_, found(run(OWN), run(set())))
    assert silent.verdict is Verdict.SKIPPED
    if id_ != "NET-024":
        alone = judged(id_, found(run(set()), run(PUBLIC)))
        assert (alone.verdict, "what must work fails" in alone.message) == (Verdict.SKIPPED, True)


@pytest.mark.parametrize("id_", [each.id.removeprefix("TNT-") for each in (*NETWORK, *PODS, *QUOTA, *STORAGE)])
def test_without_pods_nothing_is_known(id_: str) -> None:
    """X06: and it is said why."""
    result = judged(id_, nothing("no reason"))
    assert (result.verdict, result.message) == (Verdict.SKIPPED, "no reason")


def test_a_target_that_does_not_exist_does_not_count() -> None:
    """H06: no cloud answers at the metadata address here, kubelets do."""
    result = judged("NET-021", found(run(OWN)))
    outcomes = {each.what: each.outcome for each in result.attempts}
    assert outcomes[TOLD["metadata"]] == "Skipped"
    assert outcomes[TOLD["node-own"]] == "Refused"
    assert judged("NET-021", found(run(OWN | {"metadata"}))).verdict is Verdict.FAILED


def test_others_who_reach_the_tenants_pods_fail_it() -> None:
    """H06: from the pod without a tenant, which must reach its own neighbours."""
    result = judged("NET-024", found(run(OWN), run(PUBLIC | {"peer-service"})))
    assert (result.verdict, TOLD["peer-service"] in result.message) == (Verdict.FAILED, True)
    assert judged("NET-024", found(run(OWN), run({"peer-name"}))).verdict is Verdict.SKIPPED


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"api": "403 Forbidden", "api-token": "403 Forbidden"}, Verdict.PASSED),
        ({"api": "401 Unauthorized", "api-token": "200 OK"}, Verdict.FAILED),
        ({"api": "200 OK", "api-token": "403 Forbidden"}, Verdict.FAILED),
    ],
)
def test_an_answer_of_the_api_server_counts_by_its_status(said: dict[str, str], expected: Verdict) -> None:
    assert judged("NET-026", found(run(OWN | {"api", "api-token"}, said=said))).verdict is expected


def test_no_answer_of_the_api_server_is_a_refusal_where_others_have_one() -> None:
    """H06: that it is out of reach is shown by who reaches it."""
    assert judged("NET-026", found(run(OWN))).by == "the network"
    assert judged("NET-026", found(run(OWN), run(set()))).verdict is Verdict.SKIPPED
    bare = judged("NET-026", found(run({"api"}, said={"api": "401 x", "api-token": WITHOUT_TOKEN}), run(set())))
    assert (bare.verdict, bare.by) == (Verdict.PASSED, "the API server, the pod")


def test_own_pods_that_do_not_reach_each_other_are_a_failure() -> None:
    """H06: isolation that breaks the tenant's own work is none that it keeps."""
    assert judged("NET-027", found(run(OWN))).verdict is Verdict.PASSED
    result = judged("NET-027", found(run(OWN - {"peer-name"})))
    assert (result.verdict, TOLD["peer-name"] in result.message) == (Verdict.FAILED, True)


WRONG = {
    "POD-025": ContainerView(cap_bnd="000001ffffffffff"),
    "POD-026": ContainerView(raw=("AF_PACKET",)),
    "POD-027": ContainerView(uid=0),
    "POD-028": ContainerView(seccomp="0"),
    "POD-029": ContainerView(no_new_privs="0"),
    "POD-030": ContainerView(opened=("/dev/mem",)),
    "POD-031": ContainerView(boot_id="b1"),
    "POD-032": ContainerView(messages="<6>Linux version"),
}
RIGHT = msgspec.structs.replace(CLOSED, cap_bnd=USUAL, boot_id="b-of-a-machine-of-its-own")


@pytest.mark.parametrize("id_", list(WRONG))
def test_what_a_container_sees_decides(id_: str) -> None:
    """H03, H06: a container with defaults, and a restricted one."""
    assert judged(id_, found(run(OWN, WRONG[id_]))).verdict is Verdict.FAILED
    assert judged(id_, found(run(OWN, RIGHT))).verdict is Verdict.PASSED


UNPROTECTED: dict[str, ProbeFindings] = {
    **{id_: found(run(OWN | {opened})) for id_, opened in OPENED.items()},
    "NET-024": found(run(OWN), run(PUBLIC | {"peer-service"})),
    "NET-026": found(run(OWN | {"api"}, said={"api": "200 OK"})),
    "NET-027": found(run(set())),
    **{id_: found(run(OWN, inside)) for id_, inside in WRONG.items()},
    "QTA-008": found(run(OWN), memory=MemoryTest(told="take much", survived=True, end="Completed")),
    "QTA-009": found(run(OWN), pid_limits={"n1": -1}),
    "STO-009": found(run(OWN), volume=VolumeContent(files=("word",), count=1, found=True)),
}
"""What pods find where a protection is missing."""


@pytest.mark.parametrize("id_", [each.id.removeprefix("TNT-") for each in CHECKS if each.probe is not None])
def test_each_probe_fails_without_its_protection(id_: str) -> None:
    """X06: a check that needs pods, and has no removal above, fails this test."""
    assert judged(id_, UNPROTECTED[id_]).verdict is Verdict.FAILED


def test_processes_of_others_are_seen_in_a_sandbox_too() -> None:
    own = msgspec.structs.replace(CLOSED, messages="gVisor", strangers=3, opened=("/dev/kmsg",))
    result = judged("POD-030", found(run(OWN, own)))
    assert result.message.endswith("it sees 3 processes of others")


@pytest.mark.parametrize(
    ("inside", "node", "expected"),
    [
        (ContainerView(messages="[    0.000000] Starting gVisor...", boot_id="b1"), "n1", Verdict.PASSED),
        (ContainerView(version="Linux version 4.4.0 #1 SMP gvisor"), "n1", Verdict.PASSED),
        (ContainerView(boot_id="b1"), "n2", Verdict.PASSED),
        (ContainerView(boot_id="b1"), "n1", Verdict.FAILED),
        (ContainerView(), "n1", Verdict.FAILED),
        (ContainerView(boot_id="b1"), "unknown", Verdict.SKIPPED),
    ],
)
def test_a_kernel_is_known_by_its_name_or_its_start(inside: ContainerView, node: str, expected: Verdict) -> None:
    """H03: gVisor says so; a virtual machine did not start with its node."""
    assert judged("POD-031", found(run(OWN, inside, node=node))).verdict is expected


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ("0000000000000000", []),
        ("", []),
        ("0000000000200000", ["SYS_ADMIN"]),
        ("0000000000003000", ["NET_ADMIN", "NET_RAW"]),
        ("8000000000000000", ["others"]),
    ],
)
def test_capabilities_have_names(mask: str, expected: list[str]) -> None:
    assert capabilities(mask) == expected


def test_containers_usually_have_no_more_than_is_usual() -> None:
    assert set(capabilities(USUAL)) == probes.USUAL
    # bpf, the last but one, and checkpoint_restore, the last.
    assert capabilities("000001c000000000") == ["PERFMON", "BPF", "CHECKPOINT_RESTORE"]


def test_memory_and_processes_are_kept_by_the_node() -> None:
    """H06: what ends at its limit passes, what has it all does not; a node without a limit is named."""
    for survived, expected in ((False, Verdict.PASSED), (True, Verdict.FAILED)):
        eaten = MemoryTest(told="take much", survived=survived, end="OOMKilled")
        assert judged("QTA-008", found(run(OWN), memory=eaten)).verdict is expected
    assert judged("QTA-009", found(run(OWN), pid_limits={"n1": 4096, "n2": 100})).verdict is Verdict.PASSED
    result = judged("QTA-009", found(run(OWN), pid_limits={"n1": 4096, "n2": -1}))
    assert (result.verdict, "'n2'" in result.message, "'n1'" in result.message) == (Verdict.FAILED, True, False)


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        (VolumeContent(), Verdict.PASSED),
        (VolumeContent(files=("word",), count=1, found=True), Verdict.FAILED),
        (VolumeContent(files=("accounts.db",), count=1), Verdict.FAILED),
        (VolumeContent(unread="permission denied"), Verdict.SKIPPED),
        (VolumeContent(files=("a",), count=1, unread="permission denied"), Verdict.FAILED),
    ],
)
def test_a_new_volume_is_empty(volume: VolumeContent, expected: Verdict) -> None:
    """X06, H06: what could not be looked through is no pass."""
    assert judged("STO-009", found(run(OWN), volume=volume)).verdict is expected


def test_every_attempt_is_of_a_check() -> None:
    """X06: nothing is tried of which nothing comes."""
    tried: set[str] = set()
    for each in NETWORK:
        assert each.probe is not None
        probed = each.probe(PLACE, found(run(OWN)))
        assert not isinstance(probed, NotApplicable), probed.why
        tried |= {one.what for one in probed}
    assert set(TOLD.values()) <= tried


def test_attempts_are_of_addresses_that_urls_know() -> None:
    targets = {each.id: each.target for each in ATTEMPTS}
    assert targets["node-1-0"] == "[fd00::2]:10250"
    assert targets["node-own"] == "$(HOST_IP):10250"
    assert targets["closed-name"] == "closed.x.svc.cluster.local."


def test_pods_say_nothing_of_security_or_all_that_restricted_asks_for() -> None:
    """X06: as little as is admitted; and nothing that outlives the audit by long."""
    image = ProbeImage(reference="tenantry.local/probe:1", is_there=True)
    bare = objects.pod("a", "prober", image, ("try", "[]"), bare=True)["spec"]
    assert "securityContext" not in bare
    assert "securityContext" not in bare["containers"][0]
    full = objects.pod("a", "prober", image, ("try", "[]"))["spec"]
    assert full["securityContext"]["runAsNonRoot"]
    assert full["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    for spec in (bare, full):
        assert spec["activeDeadlineSeconds"] <= objects.SECONDS
        assert spec["containers"][0]["resources"]["limits"]["memory"] == "64Mi"
        assert spec["containers"][0]["imagePullPolicy"] == "IfNotPresent"
