"""Certificates and keys of a local cluster: an identity for each component, all keys on the P-256 curve.

Source: Kubernetes, "PKI certificates and requirements".
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import msgspec

from tenantry.hosting.certificates import KUBELET_CLIENT_USER, SERVER_NAMES, CertificateUse, LeafCertificate
from tenantry.local.files import make_private_folder, write_private

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_CA_DAYS = 3650
_LEAF_DAYS = 365
_RENEW_BEFORE = dt.timedelta(days=30)
_SERVICE_IP = "10.96.0.1"
OPERATOR_USER = "tenantry:operator"
OPERATOR_GROUP = "tenantry:operators"
KWOK_USER = "tenantry:kwok"
NETPOL_AGENT_USER = "tenantry:netpol-agent"
STORAGE_USER = "tenantry:local-storage"


class _Issued(msgspec.Struct, frozen=True, kw_only=True):
    """A record of an issued certificate, so that `ensure` need not parse certificates."""

    leaf: LeafCertificate | None
    not_after: dt.datetime


_ON_NODES = {
    "kube-proxy": LeafCertificate(ca="ca", user="system:kube-proxy"),
    "netpol-agent": LeafCertificate(ca="ca", user=NETPOL_AGENT_USER),
    "local-storage": LeafCertificate(ca="ca", user=STORAGE_USER),
}


def leaves(addresses: tuple[str, ...] = (), nodes: tuple[tuple[str, str], ...] = ()) -> dict[str, LeafCertificate]:
    """Return every certificate by its file name.

    Args:
        addresses: Further IP addresses of the API server.
        nodes: Name and IP address of each real node; its certificate is the kubelet's as client and as server.
    """
    server = (*SERVER_NAMES, "127.0.0.1", _SERVICE_IP, *addresses)
    local = ("localhost", "127.0.0.1")
    return {
        "server": LeafCertificate(ca="ca", user="kube-apiserver", use=CertificateUse.SERVER, names=server),
        "admin": LeafCertificate(ca="ca", user="admin", group="system:masters"),
        "operator": LeafCertificate(ca="ca", user=OPERATOR_USER, group=OPERATOR_GROUP),
        "kube-controller-manager": LeafCertificate(ca="ca", user="system:kube-controller-manager"),
        "kube-scheduler": LeafCertificate(ca="ca", user="system:kube-scheduler"),
        "kwok": LeafCertificate(ca="ca", user=KWOK_USER),
        "apiserver-kubelet-client": LeafCertificate(ca="ca", user=KUBELET_CLIENT_USER),
        "front-proxy-client": LeafCertificate(ca="front-proxy-ca", user="front-proxy-client"),
        "etcd-server": LeafCertificate(ca="etcd-ca", user="etcd", use=CertificateUse.PEER, names=local),
        "apiserver-etcd-client": LeafCertificate(ca="etcd-ca", user="kube-apiserver"),
        **(_ON_NODES if nodes else {}),
        **{name: _kubelet(name, address) for name, address in nodes},
    }


def _kubelet(name: str, address: str) -> LeafCertificate:
    return LeafCertificate(
        ca="ca", user=f"system:node:{name}", group="system:nodes", use=CertificateUse.PEER, names=(name, address)
    )


def apiserver_leaves() -> dict[str, LeafCertificate]:
    """Return the certificates of an API server without kubelets, front proxy and etcd of its own."""
    found = leaves()
    return {name: found[name] for name in ("server", "admin")}


def etcd_leaves() -> dict[str, LeafCertificate]:
    """Return the certificates of an etcd, and of the API servers that use it."""
    return {name: leaf for name, leaf in leaves().items() if leaf.ca == "etcd-ca"}


def ensure(folder: Path, wanted: Mapping[str, LeafCertificate], now: dt.datetime) -> bool:
    """Issue each certificate that is missing, was issued for something else, or expires within 30 days.

    Args:
        folder: The folder of `NAME.crt` and `NAME.key`; created with mode 0700.
        wanted: Every certificate by its file name; their authorities and a key pair for service accounts are created
            too.
        now: The time, with its zone.

    Returns:
        Whether anything was issued, after which kubeconfigs must be written again.
    """
    make_private_folder(folder)
    # A new authority invalidates every certificate of the folder, so all are issued again.
    authorities = sorted({leaf.ca for leaf in wanted.values()})
    index = _read_index(folder)
    if all(_can_stay(folder, name, None, index, now) for name in authorities):
        stale = {name: leaf for name, leaf in wanted.items() if not _can_stay(folder, name, leaf, index, now)}
        if not stale and (folder / "service-account.key").exists():
            return False
    else:
        stale = dict(wanted)
        index = {}
    # Imported here: the import costs more than everything else that a warm `up` does in Python.
    from tenantry.local import x509

    for name in authorities:
        if name not in index:
            end = now + dt.timedelta(days=_CA_DAYS)
            x509.write_authority(folder, name, now, end)
            index[name] = _Issued(leaf=None, not_after=end)
    for name, leaf in stale.items():
        end = now + dt.timedelta(days=_LEAF_DAYS)
        x509.write_leaf(folder, name, leaf, now, end)
        index[name] = _Issued(leaf=leaf, not_after=end)
    if not (folder / "service-account.key").exists():
        x509.write_key_pair(folder, "service-account")
    write_private(folder / "index.json", msgspec.json.encode(index))
    return True


def _can_stay(
    folder: Path, name: str, leaf: LeafCertificate | None, index: dict[str, _Issued], now: dt.datetime
) -> bool:
    issued = index.get(name)
    return (
        issued is not None
        and issued.leaf == leaf
        and issued.not_after - now > _RENEW_BEFORE
        and (folder / f"{name}.crt").exists()
        and (folder / f"{name}.key").exists()
    )


def _read_index(folder: Path) -> dict[str, _Issued]:
    try:
        return msgspec.json.decode((folder / "index.json").read_bytes(), type=dict[str, _Issued])
    except (OSError, msgspec.MsgspecError):
        return {}
