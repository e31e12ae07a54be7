"""Users with client certificates of the API server's authority."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from tenantry.hosting.certificates import LeafCertificate
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import x509
from tenantry.local.cluster import LocalCluster
from testkit.api import Api


@asynccontextmanager
async def as_person(cluster: LocalCluster, folder: Path, user: str, group: str = "") -> AsyncGenerator[Api]:
    """Connect as a user with a client certificate, in a group or in none."""
    for file in ("ca.crt", "ca.key"):
        shutil.copy(cluster.paths.pki / file, folder / file)
    now = dt.datetime.now(dt.UTC)
    leaf = LeafCertificate(ca="ca", user=user, group=group)
    x509.write_leaf(folder, user, leaf, now, now + dt.timedelta(hours=1))
    connection = msgspec.structs.replace(
        kubeconfig.load([cluster.kubeconfig_path]),
        certificate=(folder / f"{user}.crt").read_bytes(),
        key=(folder / f"{user}.key").read_bytes(),
    )
    async with Client(connection) as client:
        yield Api(client)
