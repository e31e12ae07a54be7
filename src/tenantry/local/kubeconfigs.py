"""Writes kubeconfig files that hold their certificates, so that they can be copied."""

from __future__ import annotations

import base64

from tenantry.local.files import write_private
from tenantry.local.paths import ClusterPaths

IDENTITIES = ("admin", "operator", "kube-controller-manager", "kube-scheduler", "kwok")

# What kubectl itself would write, for the people who open the file; no YAML library is needed for it.
_TEXT = """\
apiVersion: v1
kind: Config
clusters:
- name: {cluster}
  cluster:
    server: {server}
    certificate-authority-data: {authority}
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


def write_all(paths: ClusterPaths, name: str, port: int) -> None:
    """Write the kubeconfig of each identity, where its text would differ.

    Args:
        paths: The cluster's.
        name: The cluster's; the context is called "tenantry-NAME".
        port: The API server's.
    """
    # Where there are real nodes, there is who makes volumes of their folders.
    storage = ("local-storage",) if (paths.pki / "local-storage.crt").exists() else ()
    for identity in (*IDENTITIES, *storage):
        write(paths, name, identity, port)


def write(paths: ClusterPaths, name: str, identity: str, port: int) -> None:
    """Write the kubeconfig of one identity, unless the file has this text already; arguments as `write_all`."""
    data = text(paths, name, identity, f"https://127.0.0.1:{port}").encode()
    file = paths.kubeconfig(identity)
    if not file.exists() or file.read_bytes() != data:
        write_private(file, data)


def text(paths: ClusterPaths, name: str, identity: str, server: str) -> str:
    """Return the kubeconfig of an identity.

    Args:
        paths: The cluster's.
        name: The cluster's.
        identity: What its certificate is called.
        server: Where the API server is, as a URL.
    """
    return _TEXT.format(
        cluster=f"tenantry-{name}",
        server=server,
        authority=_base64(paths, "ca.crt"),
        user=f"tenantry-{name}-{identity}",
        credentials=_CERTIFICATE.format(
            certificate=_base64(paths, f"{identity}.crt"), key=_base64(paths, f"{identity}.key")
        ),
    )


def bootstrap(paths: ClusterPaths, name: str, token: str, server: str) -> str:
    """Return the kubeconfig by which the kubelet of a node asks for a certificate."""
    return _TEXT.format(
        cluster=f"tenantry-{name}",
        server=server,
        authority=_base64(paths, "ca.crt"),
        user=f"tenantry-{name}-join",
        credentials=f"    token: {token}",
    )


def _base64(paths: ClusterPaths, file: str) -> str:
    return base64.b64encode((paths.pki / file).read_bytes()).decode()
