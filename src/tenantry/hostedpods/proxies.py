"""The endpoint proxy before control planes in Pods: what this operator has it do.

    keep ─► Secret hosted-proxy: its certificates
         ─► a ProxySession to each of its Pods ─► told anew of all control planes that this operator serves
    tell ─► ToldPlane: port, Pods, phase, suspension ─► each session, and each later one
    forget ─► each session, and the next one to each Pod that has not confirmed it
    knocked ◄── a client of a control plane that sleeps

There is more than one Pod while one replaces another. A proxy that starts knows nothing and listens nowhere; while no
operator is connected, it keeps what it was told.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from pathlib import Path

from tenantry.api.errors import LocalError
from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.engine.tasks import all_of, cancelled_at_end, first_error, in_background
from tenantry.hostedpods import following, issuedkeys, objects
from tenantry.hostedpods.issuedkeys import IssuedKeys
from tenantry.hostedpods.proxyabsence import ProxyAbsence
from tenantry.hostedpods.proxysession import ProxySession, ToldPlane
from tenantry.hosting.certificates import CertificateUse, LeafCertificate
from tenantry.install import planeproxy
from tenantry.kube.client import Client

KEYS = f"{planeproxy.NAME}-keys"
SECONDS = 40.0
"""How long a proxy may be away: its Pod starts, or its certificates are new."""

_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.2, 5.0
_SELECTOR = ",".join(f"{key}={value}" for key, value in planeproxy.SELECTOR.items())

log = logging.getLogger(__name__)


def leaves() -> dict[str, LeafCertificate]:
    """Return the certificates of the proxy, and of operators there."""
    return {
        planeproxy.SERVER: LeafCertificate(
            ca=planeproxy.AUTHORITY,
            user=planeproxy.SERVER,
            use=CertificateUse.SERVER,
            names=(planeproxy.SERVER,),
        ),
        planeproxy.CLIENT: LeafCertificate(ca=planeproxy.AUTHORITY, user=planeproxy.CLIENT),
    }


class EndpointProxies:
    """The Pods of the endpoint proxy of one cluster.

    Args:
        client: The operator's, of the cluster.
        folder: A private folder of this process.
    """

    def __init__(self, client: Client, folder: Path) -> None:
        self._client = client
        self._folder = folder
        self._keys = IssuedKeys(client, folder, KEYS, planeproxy.SELECTOR)
        self._told: dict[str, ToldPlane] = {}
        # By the uid of a control plane that was deleted: the addresses of the Pods of the proxy that have ended it.
        self._forgotten: dict[str, set[str]] = {}
        # By address: its Pods that run, and whether they stay.
        self._pods: dict[str, bool] = {}
        self._sessions: dict[str, ProxySession] = {}
        self._changed = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._address = ""
        self._absence = ProxyAbsence(SECONDS, self._look_at_all)
        self.moved: set[Callable[[str], None]] = set()
        """Called with the uid of each control plane that pods reach at another address, or whose clients cannot connect
        any more, or can again; empty while none is served."""

    @property
    def address(self) -> str:
        """The address at which pods reach the proxy; "" while it is not known."""
        return self._address

    @property
    def absence(self) -> str:
        """Why no client of any control plane can connect, and what to do; "" if nothing is known."""
        return self._absence.message

    def told(self, uid: str) -> ToldPlane | None:
        """Return what proxies are told of a control plane; None if it is not known here."""
        return self._told.get(uid)

    async def keep(self) -> None:
        """Keep the certificates and the connections, until cancelled."""
        async with cancelled_at_end() as group:
            self._group = group
            group.create_task(issuedkeys.kept_up(self._prepare, "the endpoint proxy"))
            await self._follow_pods(group)

    async def _follow_pods(self, group: asyncio.TaskGroup) -> None:
        """Keep a session to each Pod that runs, in a group, for ever."""
        running: dict[str, asyncio.Task[None]] = {}
        async with aclosing(following.lists(self._client, _SELECTOR)) as changes:
            async for found in changes:
                self._pods = {each["status"]["podIP"]: stays(each) for each in found.values() if runs(each)}
                self._settle()
                self._absence.take(found.values())
                for address in running.keys() - self._pods.keys():
                    running.pop(address).cancel()
                for address in self._pods.keys() - running.keys():
                    running[address] = group.create_task(self._serve(address))
                self._now_changed()

    def serve(self, moved: Callable[[str], None]) -> None:
        """Say that this operator serves control planes, also in sessions that began before.

        Args:
            moved: See `moved`.
        """
        self.moved.add(moved)
        for session in self._sessions.values():
            if session.is_told and self._group is not None:
                self._group.create_task(_completed(session))

    async def tell(self, plane: ToldPlane, *, by_all: bool = False) -> None:
        """Tell the proxies of a control plane, and return when one acts accordingly.

        Args:
            plane: The control plane.
            by_all: Whether each Pod of the proxy that runs must.

        Raises:
            LocalError: None does, or not all do.
        """
        self._take(plane)

        def tell(session: ProxySession) -> Awaitable[None]:
            # What another task has told meanwhile is newer.
            return session.tell(self._told.get(plane.uid, plane))

        await self._confirmed(tell, by_all=by_all)

    def note(self, plane: ToldPlane) -> None:
        """Tell the proxies of a control plane as soon as they can be told."""
        self._take(plane)
        for address, session in self._sessions.items():
            if self._group is not None:
                self._group.create_task(self._send(address, session, plane.uid))

    async def forget(self, uid: str) -> None:
        """Have the proxies end a control plane that is deleted, if they can be told."""
        self._told.pop(uid, None)
        self._forgotten[uid] = set()
        for address, session in list(self._sessions.items()):
            await self._send_forgotten(address, session, uid)
        self._settle()

    def drop(self, uids: Iterable[str]) -> None:
        """Forget here what another operator may report from now on."""
        for uid in list(uids):
            self._told.pop(uid, None)

    def uids(self) -> list[str]:
        """Return the control planes that proxies are told of."""
        return list(self._told)

    async def knocked(self, uid: str) -> None:
        """Return when a client of a control plane is held because its Pod does not run.

        Raises:
            LocalError: A proxy refuses.
        """
        while not await self._is_knocked(uid):
            pass

    async def _is_knocked(self, uid: str) -> bool:
        """Return whether a client is held, once one is or there are other sessions."""
        changed = self._changed
        with first_error():
            async with cancelled_at_end() as group:
                told = [each for each in self._sessions.values() if each.is_told]
                asked = [group.create_task(_knocked(each, uid)) for each in told]
                other = group.create_task(changed.wait())
                done, _ = await asyncio.wait({*asked, other}, return_when=asyncio.FIRST_COMPLETED)
                if any(each.result() for each in asked if each in done):
                    return True
                # A session that has ended is removed in a moment.
                await changed.wait()
        return False

    async def _confirmed(self, act: Callable[[ProxySession], Awaitable[None]], *, by_all: bool) -> None:
        """Act in sessions until one, or all, have succeeded."""
        try:
            async with asyncio.timeout(SECONDS):
                changed = self._changed
                while not await self._has_acted(act, by_all=by_all):
                    # It may have changed during the attempt.
                    await changed.wait()
                    changed = self._changed
        except TimeoutError:
            raise LocalError(
                f"the endpoint proxy does not answer: Deployment {planeproxy.NAME!r} in {PROCESS_NAMESPACE!r} must run"
                f" (`kubectl logs -n {PROCESS_NAMESPACE} deployment/{planeproxy.NAME}` shows its log)"
            ) from None

    async def _has_acted(self, act: Callable[[ProxySession], Awaitable[None]], *, by_all: bool) -> bool:
        sessions = {address: each for address, each in self._sessions.items() if each.is_told}
        if not sessions or (by_all and self._pods.keys() - sessions.keys()):
            return False

        async def acted(session: ProxySession) -> bool:
            with suppress(OSError):
                await act(session)
                return True
            return False

        done = await all_of([acted(each) for each in sessions.values()])
        return all(done) if by_all else any(done)

    async def _send(self, address: str, session: ProxySession, uid: str) -> None:
        """Tell one proxy of a control plane; no error leaves this method, because it would end all sessions."""
        try:
            if (plane := self._told.get(uid)) is not None:
                await session.tell(plane)
        except OSError:
            pass  # the next session is told again
        except LocalError as error:
            log.warning("the endpoint proxy refuses", extra={"address": address, "error": str(error)})

    def _take(self, plane: ToldPlane) -> None:
        self._forgotten.pop(plane.uid, None)
        self._told[plane.uid] = plane

    async def _send_forgotten(self, address: str, session: ProxySession, uid: str) -> None:
        """Have one proxy end a control plane, unless it is told of again; the next session does it after an error."""
        done = self._forgotten.get(uid)
        if done is None or address in done:
            return
        with suppress(OSError):
            # A proxy that refuses would refuse again.
            with suppress(LocalError):
                await session.forget(uid)
            done.add(address)

    def _settle(self) -> None:
        """Drop the control planes that each Pod of the proxy has ended; before the first list, no Pod is known."""
        if self._pods:
            self._forgotten = {uid: by for uid, by in self._forgotten.items() if self._pods.keys() - by}

    async def _prepare(self) -> None:
        files = await self._keys.kept(leaves())
        own = {key: files[name] for key, name in planeproxy.FILES.items()}
        secret = self._keys.secret(planeproxy.NAME, own)
        await self._client.apply(objects.SECRETS, PROCESS_NAMESPACE, planeproxy.NAME, secret)

    async def _serve(self, address: str) -> None:
        """Keep a session to one Pod; no error leaves this method, because it would end all sessions."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                session = await ProxySession.opened(address, await asyncio.to_thread(self._context))
                pause = _FIRST_PAUSE_SECONDS
                await self._follow(address, session)
            except (OSError, EOFError, LocalError) as error:
                log.debug("the endpoint proxy is not connected", extra={"address": address, "error": str(error)})
            except Exception:  # a bug must not end the operator
                log.exception("the session of an endpoint proxy failed", extra={"address": address})
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE_SECONDS)

    async def _follow(self, address: str, session: ProxySession) -> None:
        """Tell a proxy everything, and keep it up to date until the session ends."""
        try:
            async with in_background(session.run()) as receiving:
                # First: what others report meanwhile goes out at once, and what follows is as new.
                self._sessions[address] = session
                for uid in list(self._forgotten):
                    await self._send_forgotten(address, session, uid)
                self._settle()
                # One that the proxy refuses must not keep the others from it.
                for uid in list(self._told):
                    await self._send(address, session, uid)
                if self.moved:
                    await session.complete()
                session.is_told = True
                self._now_changed()
                await receiving
        finally:
            session.close()
            self._sessions.pop(address, None)
            self._now_changed()

    def _context(self) -> ssl.SSLContext:
        at = self._folder
        found = ssl.create_default_context(cafile=at / f"{planeproxy.AUTHORITY}.crt")
        found.load_cert_chain(at / f"{planeproxy.CLIENT}.crt", at / f"{planeproxy.CLIENT}.key")
        return found

    def _now_changed(self) -> None:
        """Wake all that wait for a session, and report a proxy that has moved."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        told = {address for address, each in self._sessions.items() if each.is_told}
        staying = {address for address in told if self._pods.get(address)}
        if self._address in staying or not staying:
            return
        self._address = min(staying)
        self._look_at_all()

    def _look_at_all(self) -> None:
        for moved in self.moved:
            for uid in self._told:
                moved(uid)


def runs(pod: Json) -> bool:
    """Return whether the containers of a Pod have been started, and have not ended."""
    return bool(pod["status"].get("podIP")) and pod["status"].get("phase") == "Running"


def stays(pod: Json) -> bool:
    """Return whether a Pod is not being deleted."""
    return "deletionTimestamp" not in pod["metadata"]


async def _completed(session: ProxySession) -> None:
    # The next session says it anew.
    with suppress(OSError, LocalError):
        await session.complete()


async def _knocked(session: ProxySession, uid: str) -> bool:
    with suppress(OSError):
        await session.knocked(uid)
        return True
    return False
