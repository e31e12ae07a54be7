"""Starts the Jobs that keep snapshots (jobs.py), and connects to them.

opened ─► keys of its own ─► Secret, Job ─► Pod is ready ─► SnapshotKeeper
opened again within seconds ─► the same SnapshotKeeper
ended, before a control plane starts ─► Job and Pod are gone
"""

from __future__ import annotations

import asyncio
import datetime as dt
import shutil
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from tenantry.api.errors import Conflict, Forbidden, LocalError, NotFound, StoreError
from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.hostedpods import following, jobs, objects
from tenantry.hostedpods.jobs import JOBS, KeeperRole
from tenantry.hostedpods.keeper import SnapshotKeeper
from tenantry.hosting import sidecar
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.local import pki

START_SECONDS = 180.0
END_SECONDS = 60.0
_REUSED_SECONDS = 20.0
"""The time after which a Job may be about to end by itself; shorter than `jobs.IDLE_SECONDS`."""


class _Open(msgspec.Struct, frozen=True):
    keeper: SnapshotKeeper
    subject: str


class KeeperJobs:
    """The Jobs of all control planes that this process has started.

    Args:
        client: Of the cluster.
        folder: A private folder of this process, for their keys.
    """

    def __init__(self, client: Client, folder: Path) -> None:
        self._client = client
        self._folder = folder
        self._open: dict[tuple[str, KeeperRole], _Open] = {}

    def found(self, uid: str, role: KeeperRole, subject: str) -> SnapshotKeeper | None:
        """Return the keeper of a Job that runs; None if there is none.

        Args:
            uid: Of the control plane.
            role: What it has.
            subject: Which one: another one ends this one.
        """
        known = self._open.get((uid, role))
        now = asyncio.get_running_loop().time()
        is_open = known is not None and known.subject == subject and now - known.keeper.used < _REUSED_SECONDS
        return known.keeper if known is not None and is_open else None

    async def opened(
        self, uid: str, role: KeeperRole, subject: str, make: Callable[[], Json], told: str
    ) -> SnapshotKeeper:
        """Return the keeper of a Job, which is started unless it runs.

        Args:
            uid: As for `found`.
            role: As for `found`.
            subject: As for `found`.
            make: Returns the Job.
            told: What messages call its volume.

        Raises:
            StoreError: It does not start.
        """
        if (known := self.found(uid, role, subject)) is not None:
            return known
        try:
            await self.end(uid, role)
            context, secret = await asyncio.to_thread(self._issue, uid, role)
            name = jobs.name(uid, role)
            written = await self._client.apply(objects.SECRETS, PROCESS_NAMESPACE, name, secret)
            body = wire.encode_json(make())
            made = await self._client.request("POST", wire.path(JOBS, PROCESS_NAMESPACE), body=body)
            await self._own(msgspec.json.decode(written), msgspec.json.decode(made))
            pod, *_ = await following.ready(self._client, jobs.selector(uid, role), f"{name}-…", START_SECONDS)
        except Forbidden as error:
            raise StoreError(refusal(told, error)) from error
        except Conflict as error:
            raise StoreError(f"{told}: another operator uses it now: try again", is_passing=True) from error
        except LocalError as error:
            raise StoreError(f"{told}: {error}") from error
        keeper = SnapshotKeeper(pod.address, context, told)
        self._open[uid, role] = _Open(keeper, subject)
        return keeper

    async def end(self, uid: str, role: KeeperRole) -> None:
        """End a Job, and return once no Pod of it has the volume; one that is gone needs nothing.

        Raises:
            LocalError: Its Pod still ends.
        """
        self._open.pop((uid, role), None)
        name = jobs.name(uid, role)
        with suppress(NotFound):
            await self._client.delete(JOBS, PROCESS_NAMESPACE, name)
        await following.gone(self._client, jobs.selector(uid, role), f"{name}-…", END_SECONDS)

    async def remove(self, uid: str, role: KeeperRole) -> None:
        """End a Job, and delete its keys."""
        await self.end(uid, role)
        with suppress(NotFound):
            await self._client.delete(objects.SECRETS, PROCESS_NAMESPACE, jobs.name(uid, role))

    def _issue(self, uid: str, role: KeeperRole) -> tuple[ssl.SSLContext, Json]:
        """Return new keys: the context of this end, and the Secret of the other one."""
        folder = self._folder / jobs.name(uid, role)
        shutil.rmtree(folder, ignore_errors=True)
        pki.ensure(folder, sidecar.leaves(), dt.datetime.now(dt.UTC))
        context = sidecar.context(folder)
        names = sidecar.FILES.items()
        secret = objects.secret(uid, jobs.name(uid, role), {key: (folder / file).read_bytes() for key, file in names})
        shutil.rmtree(folder)
        return context, secret

    async def _own(self, secret: Json, job: Json) -> None:
        """Have Kubernetes delete the keys with the Job.

        Raises:
            Conflict: Another operator has replaced the keys meanwhile, which end with the Job of that one.
        """
        about: Json = secret["metadata"]
        meta: Json = job["metadata"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
        guard = {"uid": about["uid"], "resourceVersion": about["resourceVersion"]}
        patch = {"metadata": {**guard, "ownerReferences": [owner]}}
        await self._client.merge_patch(objects.SECRETS, PROCESS_NAMESPACE, about["name"], patch)


def refusal(told: str, error: Forbidden) -> str:
    """Return the message of a Job that must not be made: for missing rights, or because admission refuses it.

    Args:
        told: What messages call its volume.
        error: The refusal, which names the user only if rights are missing.
    """
    lacks_rights = "cannot" in str(error)
    fix = " (`tenantry install --virtual-control-planes` gives the rights)" if lacks_rights else ""
    return f"{told}: a Job cannot be made in namespace {PROCESS_NAMESPACE!r}{fix}: {error}"
