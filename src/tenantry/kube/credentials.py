"""How a request proves who sends it: bearer tokens, token files, exec plugins; and the TLS context."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import ssl
import tempfile
import time
from pathlib import Path

import msgspec

from tenantry.api.errors import ConfigError
from tenantry.kube import program
from tenantry.kube.kubeconfig import Connection, ExecPlugin

TOKEN_FILE_SECONDS = 60.0
"""How long a token read from a file is used before the file is read again (client-go's interval)."""

EXEC_TIMEOUT_SECONDS = 60.0


class _ExecStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: dt.datetime | None = None


class _ExecCredential(msgspec.Struct, frozen=True):
    status: _ExecStatus = _ExecStatus()


class Credentials:
    """The Authorization header of the moment, and the TLS context."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._token = connection.token
        self._valid_until = float("inf") if connection.token else 0.0
        self._plugin_certificate: tuple[bytes, bytes] | None = None
        self._lock = asyncio.Lock()

    async def header(self) -> str | None:
        """Return the Authorization header's value, None if a certificate does it.

        Raises:
            ConfigError: The token file or the exec plugin fails.
            ApiError: A token that is issued on request is refused.
        """
        connection = self._connection
        if connection.token_file is None and connection.exec_plugin is None and connection.issue is None:
            return f"Bearer {self._token}" if self._token else None
        if time.monotonic() >= self._valid_until:
            async with self._lock:
                if time.monotonic() >= self._valid_until:
                    await self._refresh()
        return f"Bearer {self._token}" if self._token else None

    def expire(self) -> None:
        """Ask for fresh credentials next time: the server refused these."""
        if not self._connection.token:
            self._valid_until = 0.0

    async def _refresh(self) -> None:
        if self._connection.token_file is not None:
            try:
                self._token = _read_token(self._connection.token_file)
            except ConfigError:
                # One that is being replaced is away for a moment; the last token may still be good.
                if not self._token:
                    raise
            self._valid_until = time.monotonic() + TOKEN_FILE_SECONDS
        elif self._connection.issue is not None:
            issued = await self._connection.issue()
            self._token, self._valid_until = issued.token, time.monotonic() + issued.seconds
        elif self._connection.exec_plugin is not None:
            status = await _run_plugin(self._connection.exec_plugin, self._connection.source)
            self._token = status.token
            if status.client_certificate_data:
                self._plugin_certificate = (status.client_certificate_data.encode(), status.client_key_data.encode())
            self._valid_until = _monotonic(status.expiration_timestamp)

    async def tls(self) -> ssl.SSLContext | bool:
        """Return what aiohttp takes as `ssl`.

        Raises:
            ConfigError: The certificates do not parse or do not belong together.
        """
        connection = self._connection
        if not connection.server.startswith("https://"):
            return False
        await self.header()  # an exec plugin may give the certificate
        try:
            context = ssl.create_default_context(cadata=connection.ca.decode() if connection.ca else None)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"{connection.source}: the certificate authority does not parse: {error}") from error
        if connection.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        pair = self._plugin_certificate or (connection.certificate, connection.key)
        if pair[0] is not None and pair[1] is not None:
            load_pair(context, pair[0], pair[1], f"{connection.source}: the client certificate")
        return context


def _read_token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"token file cannot be read: {error}") from error
    if not token:
        raise ConfigError(f"token file {str(path)!r} is empty")
    return token


async def _run_plugin(plugin: ExecPlugin, source: str) -> _ExecStatus:
    environment = {**os.environ, **{entry.name: entry.value for entry in plugin.env or ()}}
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
    environment["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()
    hint = f"; {plugin.install_hint}" if plugin.install_hint else ""
    try:
        done = await program.run(
            (plugin.command, *(plugin.args or ())), timeout_seconds=EXEC_TIMEOUT_SECONDS, environment=environment
        )
    except TimeoutError as error:
        raise ConfigError(
            f"{source}: exec plugin {plugin.command!r} gave no answer in {EXEC_TIMEOUT_SECONDS:.0f} s"
        ) from error
    except OSError as error:
        raise ConfigError(f"{source}: exec plugin {plugin.command!r} does not start: {error}{hint}") from error
    if done.code:
        said = done.err.decode(errors="replace").strip()[-300:]
        raise ConfigError(f"{source}: exec plugin {plugin.command!r} ended with {done.code}: {said}{hint}")
    try:
        return msgspec.json.decode(done.out, type=_ExecCredential).status
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{source}: exec plugin {plugin.command!r} printed no ExecCredential: {error}") from error


def _monotonic(expiry: dt.datetime | None) -> float:
    if expiry is None:
        return float("inf")
    left = (expiry - dt.datetime.now(dt.UTC)).total_seconds()
    return time.monotonic() + max(left - 10.0, 0.0)


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes, told: str) -> None:
    """Load a certificate and its key, PEM, into a context; handshakes from now on use them.

    Args:
        context: Of a client or of a server.
        certificate: The certificate.
        key: Its key.
        told: What the certificate is, as in "the client certificate".

    Raises:
        ConfigError: They do not load.
    """
    # Python's ssl takes a certificate only from a file; this one is 0600 and gone at once.
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        try:
            context.load_cert_chain(file.name)
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(f"{told} or its key does not load: {error}") from error


def expired_certificate(connection: Connection) -> str | None:
    """Return when the client certificate expired, as a date; None if it did not or there is none."""
    if connection.certificate is None:
        return None
    from cryptography import x509  # noqa: PLC0415 - slow to import, and only needed to explain a refusal

    try:
        expiry = x509.load_pem_x509_certificate(connection.certificate).not_valid_after_utc
    except ValueError:
        return None
    return expiry.strftime("%Y-%m-%d %H:%M UTC") if expiry < dt.datetime.now(dt.UTC) else None
