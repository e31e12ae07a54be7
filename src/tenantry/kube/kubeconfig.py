"""Where an API server is and how to be known to it: kubeconfig files and in-cluster credentials.

    --kubeconfig, KUBECONFIG, ~/.kube/config ─► merged file ─► context ─► Connection
    a pod's service account                  ─────────────────────────────► Connection

Source: Kubernetes, "Organizing Cluster Access Using kubeconfig Files" and "Accessing the Kubernetes API from a Pod".
"""

from __future__ import annotations

import base64
import binascii
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import msgspec
import yaml

from tenantry.api.errors import ConfigError
from tenantry.api.wording import shortened

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

# kubeconfig's own models: kebab case, and unknown fields are let be, as kubectl does.


class _ExecEnv(msgspec.Struct, frozen=True):
    name: str
    value: str


class ExecPlugin(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A command that prints an ExecCredential (Kubernetes: "client-go credential plugins")."""

    api_version: str
    command: str
    args: tuple[str, ...] | None = None
    env: tuple[_ExecEnv, ...] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False


class _Cluster(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _User(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    username: str = ""
    exec: ExecPlugin | None = None
    auth_provider: dict[str, object] | None = None
    impersonate: str = msgspec.field(name="as", default="")
    impersonate_groups: tuple[str, ...] | None = msgspec.field(name="as-groups", default=None)


class _Context(msgspec.Struct, frozen=True, kw_only=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: _Cluster = _Cluster()


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: _User = _User()


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: _Context = _Context()


class _File(msgspec.Struct, frozen=True, kw_only=True):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str | None = msgspec.field(name="current-context", default=None)


class IssuedToken(NamedTuple):
    """A bearer token that was requested, and the seconds for which it may be used."""

    token: str
    seconds: float


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is needed to speak to one API server.

    Args:
        server: The URL, without a slash at its end.
        source: Where this comes from, for messages.
        ca: PEM; None trusts the system's authorities.
        certificate: The client's certificate and its key, PEM.
        token: A bearer token.
        token_file: A file that holds the bearer token of the moment.
        exec_plugin: A command that gives the credentials.
        issue: Requests a bearer token; called again before the last one expires.
        namespace: The context's namespace, "default" where it names none.
        impersonate: The user to act as, "" for oneself.
        impersonate_groups: The groups to act in; only with a user.
        files: The files that all of this was read from.
        reload: Reads them anew; None for what did not come from files.
        max_bytes: The longest response that is read, streams apart; None for any length.
        make_socket: Makes the sockets of connections, for a server behind a tunnel; None for ordinary ones.
    """

    server: str
    source: str
    ca: bytes | None = None
    insecure: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    certificate: bytes | None = None
    key: bytes | None = None
    token: str = ""
    token_file: Path | None = None
    exec_plugin: ExecPlugin | None = None
    issue: Callable[[], Awaitable[IssuedToken]] | None = None
    namespace: str = "default"
    impersonate: str = ""
    impersonate_groups: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    reload: Callable[[], Connection] | None = None
    max_bytes: int | None = None
    make_socket: Callable[[], socket.socket] | None = None

    def fingerprint(self) -> tuple[tuple[int, int, int], ...]:
        """Return what changes when one of the files is replaced or written: inode, size and time of change."""
        return tuple(_stat(path) for path in self.files)

    def detached(self) -> Connection:
        """Return the connection as plain data, for another process: it does not notice changes of the files."""
        return msgspec.structs.replace(self, files=(), reload=None)

    def anonymous(self, source: str) -> Connection:
        """Return the same API server without credentials, for those of another client.

        Args:
            source: Where those come from, for messages.
        """
        return Connection(
            server=self.server,
            source=source,
            ca=self.ca,
            insecure=self.insecure,
            tls_server_name=self.tls_server_name,
            proxy_url=self.proxy_url,
            max_bytes=self.max_bytes,
        )

    def reloaded(self) -> Connection:
        """Return the connection as its files describe it now.

        Raises:
            ConfigError: As `load`.
        """
        return self.reload() if self.reload is not None else self


def _stat(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def default_paths() -> tuple[Path, ...]:
    """Return the files of KUBECONFIG, or ~/.kube/config if it is not set."""
    listed = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return tuple(listed) or (Path.home() / ".kube" / "config",)


def load(paths: Sequence[Path], context: str | None = None) -> Connection:
    """Read kubeconfig files, the first to name a thing wins, and follow one context.

    Raises:
        ConfigError: A file is missing, unreadable or wrong, or the context leads nowhere.
    """
    files = [(path, _read(path)) for path in paths if path.exists()]
    source = os.pathsep.join(map(str, paths))
    if not files:
        raise ConfigError(f"kubeconfig {source!r} does not exist; name another with --kubeconfig")
    name = context or next((file.current_context for _, file in files if file.current_context), "")
    if not name:
        raise ConfigError(f"kubeconfig {source!r} has no current-context; choose one with --context")
    contexts = {named.name: named.context for _, file in reversed(files) for named in file.contexts or ()}
    chosen = contexts.get(name)
    if chosen is None:
        known = shortened(contexts) or "none"
        raise ConfigError(f"kubeconfig {source!r} has no context {name!r}; it has: {known}")
    cluster = _find(files, "cluster", chosen.cluster, source)
    user = _find(files, "user", chosen.user, source) if chosen.user else (files[0][0], _User())
    connection = _connection(source, cluster, user, chosen)
    read = (*(path for path, _ in files), *_named_files(*cluster), *_named_files(*user))
    return msgspec.structs.replace(connection, files=read, reload=partial(load, tuple(paths), name))


def _named_files(kubeconfig: Path, entry: _Cluster | _User) -> list[Path]:
    """Return the files that an entry of a kubeconfig names, which are relative to it."""
    if isinstance(entry, _Cluster):
        names = [entry.certificate_authority]
    else:
        names = [entry.client_certificate, entry.client_key]
    return [kubeconfig.parent / name for name in names if name]


def in_cluster(environment: Mapping[str, str] = os.environ, directory: Path = SERVICE_ACCOUNT) -> Connection | None:
    """Return the connection that Kubernetes gives to a pod, None outside of one."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    token = directory / "token"
    if not host or not port or not token.exists():
        return None
    address = f"[{host}]" if ":" in host else host
    namespace = directory / "namespace"
    return Connection(
        server=f"https://{address}:{port}",
        source="the pod's service account",
        ca=_file(directory / "ca.crt", "the service account's certificate authority"),
        token_file=token,
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        files=(directory / "ca.crt",),
        reload=partial(_in_cluster, environment, directory),
    )


def _in_cluster(environment: Mapping[str, str], directory: Path) -> Connection:
    found = in_cluster(environment, directory)
    if found is None:
        raise ConfigError("the pod's service account token is gone")
    return found


def _read(path: Path) -> _File:
    try:
        document: object = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"kubeconfig {str(path)!r} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        # Without the lines that the parser quotes: they may hold credentials.
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else ""
        raise ConfigError(
            f"{str(path)!r} is not a kubeconfig: the file is not YAML{place}; name another with --kubeconfig"
        ) from error
    document = document or {}
    if not isinstance(document, dict):
        raise ConfigError(f"{str(path)!r} is not a kubeconfig; name another with --kubeconfig")
    kind = cast("dict[str, object]", document).get("kind")
    if kind not in (None, "Config"):
        raise ConfigError(f"{str(path)!r} is not a kubeconfig, but a {kind!r}; name another with --kubeconfig")
    try:
        return msgspec.convert(document, _File)
    except msgspec.ValidationError as error:
        raise ConfigError(f"kubeconfig {str(path)!r} is not a kubeconfig: {error}") from error


def _find(files: Sequence[tuple[Path, _File]], what: str, name: str, source: str) -> tuple[Path, _Cluster | _User]:
    for path, file in files:
        if what == "cluster":
            found: _Cluster | _User | None = next((n.cluster for n in file.clusters or () if n.name == name), None)
        else:
            found = next((n.user for n in file.users or () if n.name == name), None)
        if found is not None:
            return path, found
    raise ConfigError(f"kubeconfig {source!r} names the {what} {name!r} but does not define it")


def _connection(
    source: str,
    found_cluster: tuple[Path, _Cluster | _User],
    found_user: tuple[Path, _Cluster | _User],
    context: _Context,
) -> Connection:
    (cluster_path, cluster), (user_path, user) = found_cluster, found_user
    assert isinstance(cluster, _Cluster)  # noqa: S101 - narrows what _find returned
    assert isinstance(user, _User)  # noqa: S101 - the same
    if not cluster.server:
        raise ConfigError(f"kubeconfig {source!r}: cluster {context.cluster!r} has no server")
    if not _is_url(cluster.server):
        raise ConfigError(
            f"kubeconfig {source!r}: the server of cluster {context.cluster!r} is {cluster.server!r}; it must be a URL,"
            " as in https://127.0.0.1:6443"
        )
    if user.auth_provider is not None or user.username:
        raise ConfigError(
            f"kubeconfig {source!r}: user {context.user!r} uses auth-provider or a password, which Kubernetes no longer"
            " has; use an exec plugin, a token or a certificate"
        )
    return Connection(
        server=cluster.server.rstrip("/"),
        source=f"kubeconfig {source!r}",
        ca=_data_or_file(cluster_path, cluster.certificate_authority_data, cluster.certificate_authority),
        insecure=cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name,
        proxy_url=cluster.proxy_url,
        certificate=_data_or_file(user_path, user.client_certificate_data, user.client_certificate),
        key=_data_or_file(user_path, user.client_key_data, user.client_key),
        token=user.token,
        token_file=user_path.parent / user.token_file if user.token_file and not user.token else None,
        exec_plugin=_found_plugin(user.exec, user_path.parent) if user.exec else None,
        namespace=context.namespace or "default",
        impersonate=user.impersonate,
        impersonate_groups=user.impersonate_groups or (),
    )


def _found_plugin(plugin: ExecPlugin, folder: Path) -> ExecPlugin:
    # A bare name is looked up in PATH; one with a slash is relative to the file that it stands in, as in client-go.
    if "/" not in plugin.command:
        return plugin
    return msgspec.structs.replace(plugin, command=str(folder / plugin.command))


def _is_url(server: str) -> bool:
    try:
        parts = urlsplit(server)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def _data_or_file(kubeconfig: Path, data: str, file: str) -> bytes | None:
    if data:
        try:
            # Broken into lines it is as good, as it is to client-go.
            return base64.b64decode("".join(data.split()), validate=True)
        except binascii.Error as error:
            raise ConfigError(f"kubeconfig {str(kubeconfig)!r} holds data that is not base64: {error}") from error
    # Relative names are relative to the file that they stand in.
    return _file(kubeconfig.parent / file, f"a file that kubeconfig {str(kubeconfig)!r} names") if file else None


def _file(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{what} cannot be read: {error}") from error
