"""The authorities of the control planes in Pods: in the Secret with all keys of each; see `hosting.authorities`."""

from __future__ import annotations

from collections.abc import Mapping

from tenantry.api.errors import AlreadyExists
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.hostedpods import keys, objects, ownetcd
from tenantry.hosting import authorities
from tenantry.hosting.stores import StoreKind
from tenantry.kube import wire
from tenantry.kube.client import Client


class PodAuthorities:
    """Reads the authorities of control planes from their Secrets, and creates these from copies.

    Args:
        client: The operator's, of the cluster.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self, uid: str) -> dict[str, bytes]:
        """See `AuthorityFiles.read`."""
        secret = await keys.find(self._client, objects.keys_name(uid))
        found = authorities.of(objects.files_of(secret)) if secret is not None else {}
        if secret is None or objects.recorded(secret) is not StoreKind.OWN_ETCD:
            return found
        etcd = await keys.find(self._client, ownetcd.keys_name(uid))
        files = objects.files_of(etcd) if etcd is not None else {}
        names = (f"{authorities.ETCD}.crt", f"{authorities.ETCD}.key")
        return found | {each: files[each] for each in names if each in files}

    async def put_back(self, uid: str, files: Mapping[str, bytes], kind: StoreKind) -> None:
        """See `AuthorityFiles.put_back`."""
        name = objects.keys_name(uid)
        before = await keys.find(self._client, name)
        own = {each: content for each, content in files.items() if not each.startswith(authorities.ETCD)}
        if before is None:
            body = wire.encode_json(objects.secret(uid, name, own, kind))
            try:
                await self._client.request("POST", wire.path(objects.SECRETS, PROCESS_NAMESPACE), body=body)
            except AlreadyExists:
                return  # another replica was first
        elif not authorities.of(objects.files_of(before)):
            patch = {
                "metadata": {"resourceVersion": before["metadata"]["resourceVersion"]},
                "data": objects.secret(uid, name, own)["data"],
            }
            await self._client.merge_patch(objects.SECRETS, PROCESS_NAMESPACE, name, patch)
