"""Certificates and keys of a local cluster: an identity for each component, all keys on the P-256 curve.

Source: Kubernetes, "PKI certificates and requirements".
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import msgspec

from tenantry.hosting import authorities, certificates, noderuntime, simulation
from tenantry.hosting.certificates import (
    KUBELET_CLIENT_USER,
    LIVES,
    SERVER_NAMES,
    CertificateUse,
    IssuedCertificate,
    LeafCertificate,
)
from tenantry.local.files import make_private_folder, write_private

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

SERVICE_ACCOUNT = authorities.TOKENS
"""The file name of the key pair of ServiceAccounts' tokens."""

NEVER = dt.datetime(9999, 1, 1, tzinfo=dt.UTC)
"""When a key ends, which has no end."""

_SERVICE_IP = "10.96.0.1"
OPERATOR_USER = "tenantry:operator"
OPERATOR_GROUP = "tenantry:operators"
KWOK_USER = simulation.USER
NETPOL_AGENT_USER = "tenantry:netpol-agent"
STORAGE_USER = noderuntime.STORAGE_USER


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


def ensure(
    folder: Path,
    wanted: Mapping[str, LeafCertificate],
    now: dt.datetime,
    *,
    generations: Mapping[str, int] | None = None,
    kept: Collection[str] = (),
) -> bool:
    """Issue each certificate that is missing, was issued for something else, or is at two thirds of its life.

    Args:
        folder: The folder of `NAME.crt` and `NAME.key`; created with mode 0700.
        wanted: Every certificate by its file name; their authorities and a key pair for service accounts are created
            too.
        now: The time, with its zone.
        generations: As for `certificates.due`; that of `SERVICE_ACCOUNT` is of the key pair.
        kept: As for `certificates.due`.

    Returns:
        Whether anything was issued, after which kubeconfigs must be written again.
    """
    make_private_folder(folder)
    index = read_index(folder)
    found = certificates.due(index, wanted, now, generations=generations, kept=kept)
    wished = generations or {}
    is_keyed = _has_key_pair(folder, index, wished.get(SERVICE_ACCOUNT))
    if not found.authorities and not found.leaves and is_keyed:
        return False
    # Imported here: the import costs more than everything else that a warm `up` does in Python.
    from tenantry.local import x509

    # After a crash in between, the next call issues them again: an authority must not be older than its certificates.
    for name in (*found.authorities, *found.leaves, *(() if is_keyed else (SERVICE_ACCOUNT,))):
        index.pop(name, None)
    for name in [name for name, each in index.items() if _signed_by(each, found.authorities) and name not in kept]:
        del index[name]
    write_index(folder, index)
    for name in found.authorities:
        end = now + LIVES.authority
        x509.write_authority(folder, name, now, end)
        index[name] = IssuedCertificate(leaf=None, not_before=now, not_after=end, generation=wished.get(name, 0))
    for name in found.leaves:
        end, leaf = now + LIVES.leaf, wanted[name]
        x509.write_leaf(folder, name, leaf, now, end)
        index[name] = IssuedCertificate(leaf=leaf, not_before=now, not_after=end, signer=index[leaf.ca].not_before)
    if not is_keyed:
        x509.write_key_pair(folder, SERVICE_ACCOUNT)
        # A key has no end.
        issued = IssuedCertificate(
            leaf=None, not_before=now, not_after=NEVER, generation=wished.get(SERVICE_ACCOUNT, 0)
        )
        index[SERVICE_ACCOUNT] = issued
    write_index(folder, index)
    return True


def write_index(folder: Path, index: Mapping[str, IssuedCertificate]) -> None:
    """Record what was issued in a folder, by name."""
    write_private(folder / authorities.INDEX, msgspec.json.encode(index))


def read_index(folder: Path) -> dict[str, IssuedCertificate]:
    """Return what was issued in a folder and is there, by name."""
    try:
        found = msgspec.json.decode((folder / authorities.INDEX).read_bytes(), type=dict[str, IssuedCertificate])
    except (OSError, msgspec.MsgspecError):
        return {}
    return {name: each for name, each in found.items() if _is_there(folder, name)}


def _is_there(folder: Path, name: str) -> bool:
    public = "pub" if name == SERVICE_ACCOUNT else "crt"
    return (folder / f"{name}.{public}").exists() and (folder / f"{name}.key").exists()


def _has_key_pair(folder: Path, index: Mapping[str, IssuedCertificate], wished: int | None) -> bool:
    if not _is_there(folder, SERVICE_ACCOUNT):
        return False
    # Folders of earlier versions have a key pair without a record.
    issued = index.get(SERVICE_ACCOUNT)
    return wished in (None, issued.generation if issued is not None else 0)


def _signed_by(issued: IssuedCertificate, authorities: Collection[str]) -> bool:
    return issued.leaf is not None and issued.leaf.ca in authorities
