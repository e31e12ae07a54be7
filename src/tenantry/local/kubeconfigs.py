"""Writes kubeconfig files that hold their certificates, so that they can be copied."""

from __future__ import annotations

import base64
from pathlib import Path

from tenantry.local.files import write_private
from tenantry.local.paths import ClusterPaths

IDENTITIES = ("admin", "operator", "kube-controller-manager", "kube-scheduler", "kwok")

_AUTHORITY = "ca.crt"

# In the form that kubectl writes, readable for people, and without loading a YAML library.
_TEXT = """\
apiVersion: v1
kind: Config
clusters:
- name: {cluster}
  cluster:
    server: {server}
    {authority}
users:
- name: {user}
  user:
{credentials}
contexts:
- name: {cluster}
  context:
    cluster: {cluster}
    user: {user}
current-context: {cluster}
"""
_CERTIFICATE = """\
    client-certificate-data: {certificate}
    client-key-data: {key}"""
_FILES = """\
    client-certificate: {certificate}
    client-key: {key}"""


def write_all(paths: ClusterPaths, name: str, port: int) -> None:
    """Write the kubeconfig of each identity, unless its text is the same.

    Args:
        paths: The cluster's.
        name: The cluster's; the context is called "tenantry-NAME".
        port: The API server's.
    """
    # Clusters with real nodes also run the provisioner of local volumes.
    storage = ("local-storage",) if (paths.pki / "local-storage.crt").exists() else ()
    for identity in (*IDENTITIES, *storage):
        write(paths, name, identity, port)


def write(paths: ClusterPaths, name: str, identity: str, port: int, *, authority: str = _AUTHORITY) -> None:
    """Write the kubeconfig of one identity, unless the file has this text already; arguments as `text`."""
    write_at(paths, name, identity, _local(port), authority=authority)


def write_at(paths: ClusterPaths, name: str, identity: str, server: str, *, authority: str) -> None:
    """Write the kubeconfig of one identity with the URL of a server; see `write`."""
    _write(paths.kubeconfig(identity), text(paths, name, identity, server, authority=authority))


def write_named(paths: ClusterPaths, name: str, identity: str, port: int, *, authority: str) -> None:
    """Write a kubeconfig that names the files with its certificates: clients read them anew; arguments as `text`."""
    folder = paths.pki.name
    found = _TEXT.format(
        cluster=f"tenantry-{name}",
        server=_local(port),
        authority=f"certificate-authority: {folder}/{authority}",
        user=f"tenantry-{name}-{identity}",
        credentials=_FILES.format(certificate=f"{folder}/{identity}.crt", key=f"{folder}/{identity}.key"),
    )
    _write(paths.kubeconfig(identity), found)


def _local(port: int) -> str:
    return f"https://127.0.0.1:{port}"


def _write(file: Path, content: str) -> None:
    data = content.encode()
    # Clients read a kubeconfig again when the file changes: an unchanged text is not rewritten.
    if not file.exists() or file.read_bytes() != data:
        write_private(file, data)


def text(paths: ClusterPaths, name: str, identity: str, server: str, *, authority: str = _AUTHORITY) -> str:
    """Return the kubeconfig of an identity.

    Args:
        paths: The cluster's.
        name: The cluster's.
        identity: The name of its certificate.
        server: The URL of the API server.
        authority: The name of the file with the authorities of the API server.
    """
    return _TEXT.format(
        cluster=f"tenantry-{name}",
        server=server,
        authority=_embedded(paths, authority),
        user=f"tenantry-{name}-{identity}",
        credentials=_CERTIFICATE.format(
            certificate=_base64(paths, f"{identity}.crt"), key=_base64(paths, f"{identity}.key")
        ),
    )


def bootstrap(paths: ClusterPaths, name: str, token: str, server: str) -> str:
    """Return the kubeconfig with which the kubelet of a node requests a certificate."""
    return _TEXT.format(
        cluster=f"tenantry-{name}",
        server=server,
        authority=_embedded(paths, _AUTHORITY),
        user=f"tenantry-{name}-join",
        credentials=f"    token: {token}",
    )


def joining(ca: str, name: str, token: str, server: str, *, file: str = "") -> str:
    """Return the kubeconfig with which a kubelet requests a certificate of another cluster.

    Args:
        ca: The authorities of its API server, as PEM.
        name: The name of the context.
        token: The bootstrap token.
        server: The URL of the API server.
        file: The path of a file with the authorities, where the kubelet is: its own kubeconfig then names it, too.
    """
    embedded = f"certificate-authority-data: {base64.b64encode(ca.encode()).decode()}"
    return _TEXT.format(
        cluster=f"tenantry-{name}",
        server=server,
        authority=f"certificate-authority: {file}" if file else embedded,
        user=f"tenantry-{name}-join",
        credentials=f"    token: {token}",
    )


def _embedded(paths: ClusterPaths, authority: str) -> str:
    return f"certificate-authority-data: {_base64(paths, authority)}"


def _base64(paths: ClusterPaths, file: str) -> str:
    return base64.b64encode((paths.pki / file).read_bytes()).decode()
