"""Settings of a hosted API server that its users choose, and the files that it reads them from: pure.

    authentication.json   read again when it changes, so that the process runs on
    audit-policy.json     what audit/audit.log has: at most `AUDIT_FILES` files

Sources: Kubernetes, "Authenticating" (AuthenticationConfiguration) and "Auditing" (Policy).
"""

from __future__ import annotations

import msgspec

AUTHENTICATION = "authentication.json"
AUDIT_POLICY = "audit-policy.json"
AUDIT_FOLDER = "audit"
AUDIT_LOG = "audit.log"
AUDIT_FILES, AUDIT_MEGABYTES = 5, 10
"""How many files the audit log has at most, the current one included, and how large each is."""

_READS = ["get", "list", "watch"]
_AUTHENTICATED = ["system:authenticated"]
_CONNECTED = [
    {
        "group": "",
        "resources": [
            *("pods/exec", "pods/attach", "pods/portforward"),
            *("pods/proxy", "services/proxy", "nodes/proxy"),
        ],
    }
]
_CONFIDENTIAL = [
    {"group": "", "resources": ["secrets", "configmaps", "serviceaccounts/token"]},
    {"group": "authentication.k8s.io", "resources": ["tokenreviews"]},
]


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one API server.

    Args:
        authenticators: Entries of `jwt` in its AuthenticationConfiguration.
        audit_level: What its audit log has, as in a Policy; "" for no log.
        max_reads: How many requests that only read it serves at once.
        max_writes: How many that write.
        feature_gates: Features of Kubernetes that are on, besides those that are on by default.
    """

    authenticators: tuple[dict[str, object], ...] = ()
    audit_level: str = ""
    max_reads: int = 400
    max_writes: int = 200
    feature_gates: tuple[str, ...] = ()


def flags(options: ServerOptions) -> list[str]:
    """Return the flags of kube-apiserver."""
    audit = [
        f"--audit-policy-file={AUDIT_POLICY}",
        f"--audit-log-path={AUDIT_FOLDER}/{AUDIT_LOG}",
        *(f"--audit-log-maxbackup={AUDIT_FILES - 1}", f"--audit-log-maxsize={AUDIT_MEGABYTES}"),
    ]
    return [
        f"--authentication-config={AUTHENTICATION}",
        f"--max-requests-inflight={options.max_reads}",
        f"--max-mutating-requests-inflight={options.max_writes}",
        *(audit if options.audit_level else ()),
    ]


def authentication(options: ServerOptions) -> bytes:
    """Return the AuthenticationConfiguration: issuers are reached like webhooks by URL, through the gate."""
    entries: list[dict[str, object]] = []
    for each in options.authenticators:
        issuer = each["issuer"]
        if isinstance(issuer, dict):
            entries.append({**each, "issuer": {**issuer, "egressSelectorType": "controlplane"}})
    found = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": entries}
    return msgspec.json.encode(found)


def audit_policy(options: ServerOptions, ignored: str) -> bytes:
    """Return the Policy of the audit log.

    Administrators can have a certificate issued for any user, and for any group except `system:masters`: a name alone
    exempts reads only, and no way into a pod, which may be a GET. Requests of anonymous clients and those that fail
    authentication, which have no user, are left out: clients without credentials could push all other events out of the
    files.

    Args:
        options: The settings.
        ignored: A user in `system:masters` whose requests are no acts of users.
    """
    level = options.audit_level or "None"
    rules: list[dict[str, object]] = [
        {"level": "None", "users": [ignored, "system:apiserver"], "userGroups": ["system:masters"]},
        {"level": level, "userGroups": _AUTHENTICATED, "resources": _CONNECTED},
        {"level": "None", "users": ["system:kube-controller-manager"], "verbs": _READS},
        {"level": "None", "nonResourceURLs": ["/livez*", "/readyz*", "/healthz*", "/openapi/*", "/api*", "/version"]},
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"], "verbs": _READS},
        {"level": "None", "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}]},
        {"level": "Metadata", "userGroups": _AUTHENTICATED, "resources": _CONFIDENTIAL},
        {"level": level, "userGroups": _AUTHENTICATED},
    ]
    found = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": True,
        "rules": rules,
    }
    return msgspec.json.encode(found)
