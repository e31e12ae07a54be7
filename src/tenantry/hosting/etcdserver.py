"""How an etcd of hosted control planes is run, wherever it is: pure.

Source: etcd, "Configuration options", "Space quota", "Role-based access control" (client certificates as users).
"""

from __future__ import annotations

from collections.abc import Sequence

SHARED_BYTES, OWN_BYTES = 8 * 2**30, 2 * 2**30
"""How large the file of an etcd may be that control planes share, or that one has to itself."""

SHARED_MEMORY_BYTES, OWN_MEMORY_BYTES = 2 * 2**30, 512 * 2**20
"""Its memory without the pages of its file, which the kernel takes back. Most is its index: 250 bytes for each key."""

OWN_REQUEST_BYTES, OWN_REQUEST_MILLIS = 128 * 2**20, 25
"""What an own one requests; at rest, it takes 40 to 70 MiB. Its limit is `OWN_MEMORY_BYTES`."""

OWN_CHARGE = {
    "requests.cpu": f"{OWN_REQUEST_MILLIS}m",
    "requests.memory": str(OWN_REQUEST_BYTES),
    "limits.memory": str(OWN_MEMORY_BYTES),
}
"""What an own one takes of the quota of its tenant, besides the processes."""

SOFT_PART = 0.8
"""Of its memory: where Go begins to collect garbage more often."""

# Single members dial no peer, but etcd wants a host and a port.
_NOWHERE = "https://localhost:1"
_RETENTION = "5m"
_DEFRAGMENT_MEGABYTES = 64


def flags(client_urls: Sequence[str], data: str, certificates: str, quota_bytes: int) -> list[str]:
    """Return the flags of an etcd with one member, whose clients are users by the names of their certificates.

    Its working directory must be private, and one that it may write to: the socket for peers is there, which has no
    client. Of the URL of that socket, etcd takes the host alone, in which no "/" can be. With a path, and so without a
    host, it would listen at an abstract socket, which the whole network namespace reaches. It could not close that one
    where the root file system is read-only, and would end by SIGKILL only.

    Args:
        client_urls: Where it listens.
        data: The folder of its data.
        certificates: The folder with `server` and `etcd-ca`, see `stores.etcd_leaves`.
        quota_bytes: How large its file may be: it refuses all writes then.
    """
    files = (("cert-file", "server.crt"), ("key-file", "server.key"), ("trusted-ca-file", "etcd-ca.crt"))
    tls = [f"--{prefix}{flag}={certificates}/{file}" for prefix in ("", "peer-") for flag, file in files]
    return [
        *("--name=local", f"--data-dir={data}"),
        *(f"--listen-client-urls={','.join(client_urls)}", f"--advertise-client-urls={_NOWHERE}"),
        *("--listen-peer-urls=unixs://peer.sock", f"--initial-advertise-peer-urls={_NOWHERE}"),
        *(f"--initial-cluster=local={_NOWHERE}", "--client-cert-auth", "--peer-client-cert-auth", *tls),
        # The gateway would hide who a client is.
        *("--enable-grpc-gateway=false", "--heartbeat-interval=50", "--election-timeout=250"),
        *("--log-level=warn", "--logger=zap"),
        # Control planes may not compact, because that is for all keys.
        *("--auto-compaction-mode=periodic", f"--auto-compaction-retention={_RETENTION}"),
        f"--quota-backend-bytes={quota_bytes}",
        # At its start, nothing waits for it.
        f"--bootstrap-defrag-threshold-megabytes={_DEFRAGMENT_MEGABYTES}",
    ]
