"""Settings of the API server that a control plane's spec has (H01): pure."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from tenantry.api.errors import TerminalError
from tenantry.api.model import ObjectMeta
from tenantry.api.planeegress import PlaneEgress
from tenantry.api.planeserver import AuditLevel, PlaneAudit, PlaneAuthentication, PlaneFairness, PlaneOidc, PlaneTokens
from tenantry.api.virtualcontrolplane import VirtualControlPlane, VirtualControlPlaneSpec
from tenantry.controllers.virtualcontrolplane import desired, serveroptions
from tenantry.hosting import plane as hosting
from tenantry.hosting import serveroptions as hosted
from tenantry.hosting.serveroptions import ServerOptions
from testkit.planes import Json

OWN = "https://u.vcp.tenantry.dev"
OIDC = PlaneOidc(issuer="https://login.example.com/realm", client_id="kubernetes")


def plane(oidc: PlaneOidc | None = OIDC, *hosts: str, audit: AuditLevel = AuditLevel.NONE) -> VirtualControlPlane:
    """A control plane with a provider, and with hosts that its gate admits."""
    spec = VirtualControlPlaneSpec(
        authentication=PlaneAuthentication(oidc=oidc or UNSET),
        egress=PlaneEgress(allowed_hosts=hosts),
        audit=PlaneAudit(level=audit),
        fairness=PlaneFairness(max_reads=50),
    )
    return VirtualControlPlane(metadata=ObjectMeta(name="web", namespace="acme", uid="u"), spec=spec)


def test_an_issuer_is_reached_through_the_gate_and_names_nothing_that_has_rights() -> None:
    options = desired.plane_of(plane(), "10.96.0.7").options
    (entry,) = msgspec.json.decode(hosted.authentication(options))["jwt"]
    assert entry["issuer"] == {
        "url": "https://login.example.com/realm",
        "audiences": ["kubernetes"],
        "egressSelectorType": "controlplane",
    }
    assert entry["claimMappings"]["username"] == {"claim": "sub", "prefix": "oidc:"}
    assert any("tenantry:" in each["expression"] for each in entry["userValidationRules"])


@pytest.mark.parametrize(("hosts", "is_short"), [((), True), (("example.com",), True), (("login.example.com",), False)])
def test_an_issuer_that_the_gate_refuses_is_reported(hosts: tuple[str, ...], is_short: bool) -> None:  # noqa: FBT001 - a table
    found = serveroptions.unreachable(plane(OIDC, *hosts))
    assert (found is not None) is is_short
    assert found is None or "login.example.com is not an allowed host" in found.message
    assert serveroptions.unreachable(plane(None)) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"issuer": OWN}, "must not be that of the control plane's own tokens"),
        ({"certificate_authority": "x"}, "must be certificates in PEM"),
        ({"certificate_authority": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"}, "must be cert"),
    ],
)
def test_settings_with_which_no_api_server_starts_are_refused(change: Json, message: str) -> None:
    """H01: the process runs on with those that it has."""
    oidc = msgspec.structs.replace(OIDC, **change)
    with pytest.raises(TerminalError, match=message):
        desired.plane_of(plane(oidc), "10.96.0.7")


def flags(options: ServerOptions) -> list[str]:
    """Return the flags of the API server."""
    found = hosting.HostedPlane(uid="a-1", name="n", issuer="https://i.example", owner="o", options=options)
    return msgspec.json.decode(hosting.settings(found, 20000, "/openapi"))["apiServer"]


def test_an_audit_log_is_bounded() -> None:
    level = desired.plane_of(plane(audit=AuditLevel.REQUEST), "10.96.0.7").options
    assert {"--audit-log-maxbackup=4", "--audit-log-maxsize=10", "--max-requests-inflight=50"} <= set(flags(level))
    without = desired.plane_of(plane(), "10.96.0.7").options
    assert not [each for each in flags(without) if each.startswith("--audit")]


def level_of(groups: tuple[str, ...], user: str, verb: str, resource: str) -> str:
    """Return the level at which the API server logs a request, as its policy says; no groups are no user.

    Args:
        groups: Of the user.
        user: Its name.
        verb: Of the request.
        resource: With its subresource; a path that begins with "/" is no resource.
    """

    def names(rule: Json) -> bool:
        if resource.startswith("/"):
            return not rule.get("resources")
        if rule.get("nonResourceURLs"):
            return False
        return "resources" not in rule or any(resource in each["resources"] for each in rule["resources"])

    options = ServerOptions(audit_level="Request")
    for rule in msgspec.json.decode(hosted.audit_policy(options, "tenantry:operator"))["rules"]:
        if (
            user in rule.get("users", [user])
            and ("userGroups" not in rule or set(groups) & set(rule["userGroups"]))
            and verb in rule.get("verbs", [verb])
            and (not rule.get("nonResourceURLs") or resource in rule["nonResourceURLs"])
            and names(rule)
        ):
            return rule["level"]
    return "None"


USER, MASTER = ("system:authenticated",), ("system:authenticated", "system:masters")
CONTROLLER = ("system:authenticated", "system:serviceaccounts:kube-system")


@pytest.mark.parametrize(
    ("groups", "user", "verb", "resource", "level"),
    [
        (USER, "oidc:ada", "create", "pods", "Request"),
        (USER, "oidc:ada", "get", "/metrics", "Request"),
        (USER, "oidc:ada", "get", "/version", "None"),
        (USER, "oidc:ada", "create", "secrets", "Metadata"),
        (USER, "oidc:ada", "create", "serviceaccounts/token", "Metadata"),
        # Clients without credentials could push all other events out of the files.
        (("system:unauthenticated",), "system:anonymous", "get", "/x", "None"),
        (("system:unauthenticated",), "system:anonymous", "get", "secrets", "None"),
        ((), "", "get", "/x", "None"),
        ((), "", "list", "secrets", "None"),
        # A certificate can give any name, and every group except system:masters.
        (MASTER, "tenantry:operator", "create", "nodes", "None"),
        (MASTER, "system:apiserver", "create", "services", "None"),
        (MASTER, "oidc:ada", "create", "services", "Request"),
        (USER, "tenantry:operator", "create", "nodes", "Request"),
        (USER, "system:apiserver", "list", "services", "Request"),
        (USER, "system:kube-controller-manager", "create", "clusterrolebindings", "Request"),
        (USER, "system:kube-controller-manager", "watch", "pods", "None"),
        (CONTROLLER, "system:serviceaccount:kube-system:x", "list", "secrets", "None"),
        (CONTROLLER, "system:serviceaccount:kube-system:x", "update", "secrets", "Metadata"),
        # kubectl exec is a GET.
        (CONTROLLER, "system:serviceaccount:kube-system:x", "get", "pods/exec", "Request"),
        (USER, "system:kube-controller-manager", "get", "nodes/proxy", "Request"),
    ],
)
def test_an_audit_log_has_what_users_do_whatever_they_are_called(
    groups: tuple[str, ...], user: str, verb: str, resource: str, level: str
) -> None:
    """VCP-81, VCP-82."""
    assert level_of(groups, user, verb, resource) == level


def test_tokens_name_the_issuer_of_the_spec_and_those_of_before_are_accepted() -> None:
    """H01: workload identity; discovery names the place where the keys are published."""
    found = plane(None)
    own = desired.plane_of(found, "10.96.0.7")
    assert (own.issuer, own.former_issuers) == (OWN, ())
    tokens = PlaneTokens(issuer="https://keys.example.com/acme/")
    given = desired.plane_of(replace(found, spec=replace(found.spec, tokens=tokens)), "10.96.0.7")
    told = msgspec.json.decode(hosting.settings(given, 20000, "/openapi"))["apiServer"]
    # The first one is that of new tokens.
    issuers = [each.partition("=")[2] for each in told if each.startswith("--service-account-issuer=")]
    assert issuers == ["https://keys.example.com/acme/", OWN]
    assert "--service-account-jwks-uri=https://keys.example.com/acme/openid/v1/jwks" in told


def test_only_the_provider_changes_without_a_restart() -> None:
    """Its file is read again; flags are read at the start."""
    with_provider = desired.plane_of(plane(), "10.96.0.7").options
    without = desired.plane_of(plane(None), "10.96.0.7").options
    assert flags(with_provider) == flags(without)
    assert hosted.authentication(with_provider) != hosted.authentication(without)
    assert flags(without) != flags(desired.plane_of(plane(None, audit=AuditLevel.METADATA), "10.96.0.7").options)
