"""Builds the programs of local clusters from the Go modules, or unpacks them, once, into the user's cache.

The name of a folder is a digest of the sources, the flags and the platform, so equal names mean equal programs. The
toolchain is not part of it, so that a newer Go does not cost four minutes; `build.json` records its version.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tenantry.api.errors import LocalError
from tenantry.hosting.planecontrollers import CONTROLLERS
from tenantry.local import complaints, packaged, paths, sources, toolchain
from tenantry.local.files import check_space, explain, tail
from tenantry.local.gobuild import Compilation, run
from tenantry.local.locks import holding
from tenantry.local.progress import Progress

# Increase it when the result of the build changes, but neither sources nor flags do.
_LAYOUT = "1"
_FLAGS = ("-trimpath", "-buildvcs=false")
# Programs, and the linker's temporary files.
_NEEDED_MIB = 700
_HOSTED_SECONDS = 300
_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
    "pod/fast/pod-ready.yaml",
)


@dataclass(frozen=True)
class Binaries:
    """The programs of local clusters.

    Args:
        folder: Their folder, named by their fingerprint.
    """

    folder: Path

    @property
    def controlplane(self) -> Path:
        """etcd, kube-apiserver, kube-controller-manager, kube-scheduler or kubectl, by the first argument."""
        return self.folder / "controlplane"

    @property
    def kubectl(self) -> Path:
        """The same, called as kubectl."""
        return self.folder / "kubectl"

    @property
    def kwok(self) -> Path:
        """The simulator of nodes."""
        return self.folder / "kwok"

    @property
    def coredns(self) -> Path:
        """CoreDNS with the plugin `tenantry`; only in the folder of the product DNS."""
        return self.folder / "coredns"

    @property
    def hosted(self) -> Path:
        """The process of hosted control planes; only in the folder of the product HOSTED."""
        return self.folder / "hosted"

    @property
    def helm(self) -> Path:
        """The client of Helm; only in the folder of the product HELM."""
        return self.folder / "helm"

    @property
    def krew(self) -> Path:
        """The plugin manager of kubectl; only in the folder of the product KREW."""
        return self.folder / "krew"

    @property
    def cluster_api(self) -> Path:
        """The operator of Cluster API; only in the folder of the product CLUSTER_API."""
        return self.folder / "clusterapi"

    @property
    def cluster_api_kubeadm(self) -> Path:
        """Cluster API's kubeadm bootstrap provider; beside `cluster_api`."""
        return self.folder / "clusterapi-kubeadm"

    @property
    def cluster_api_kubeadm_control_plane(self) -> Path:
        """Cluster API's kubeadm control plane provider; beside `cluster_api`."""
        return self.folder / "clusterapi-kubeadm-control-plane"

    @property
    def clusterctl(self) -> Path:
        """Cluster API's command; only in the folder of the product CLUSTERCTL."""
        return self.folder / "clusterctl"

    @property
    def s3_gateway(self) -> Path:
        """An S3-compatible server; only in the folder of the product S3_GATEWAY."""
        return self.folder / "s3gateway"

    @property
    def endpoint_proxy(self) -> Path:
        """The endpoint proxy; only in the folder of the product ENDPOINT_PROXY."""
        return self.folder / "endpoint-proxy"

    @property
    def sidecar(self) -> Path:
        """The program beside hosted control planes in Pods; only in the folder of the product SIDECAR."""
        return self.folder / "hosted-sidecar"

    @property
    def hosted_etcd(self) -> Path:
        """The server of etcd alone; only in the folder of the product HOSTED_ETCD."""
        return self.folder / "hosted-etcd"

    @property
    def conformance(self) -> Path:
        """Kubernetes' end-to-end tests; only in the folder of the product CONFORMANCE."""
        return self.folder / "conformance"

    @property
    def openapi(self) -> Path:
        """The OpenAPI documents of built-in kinds, which hosted control planes share; only beside their program."""
        return self.folder / "openapi"

    @property
    def prebuilt(self) -> Path:
        """The database with which hosted control planes begin; only beside their program, which has made it."""
        return self.folder / "prebuilt"

    @property
    def stages(self) -> Path:
        """How simulated nodes and pods behave; kwok built from its module has none of its own."""
        return self.folder / "kwok-stages.yaml"


@dataclass(frozen=True)
class _Target:
    """One program.

    Args:
        name: The name of the file.
        package: The Go package, relative to that folder.
        tags: Go build tags.
        linker: -ldflags.
        module: The folder below go/ if it differs from the name. Not part of the fingerprint: the package is.
        cgo: Whether it has parts in C, which need a C compiler.
        modfile: The file in that folder that stands in for its go.mod; "" for none. Its name is in the fingerprint.
    """

    name: str
    package: str
    tags: str
    linker: str
    module: str = field(default="", repr=False)
    cgo: bool = field(default=False, repr=False)
    modfile: str = field(default="", repr=False)

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of Go that are not those of all programs."""
        return (f"-modfile={self.modfile}",) if self.modfile else ()

    @property
    def module_files(self) -> tuple[str, str]:
        """The files that decide the versions of all modules."""
        file = self.modfile or "go.mod"
        return file, f"{file.removesuffix('.mod')}.sum"

    @property
    def folder(self) -> str:
        """The folder of its module, below go/."""
        return self.module or self.name


@dataclass(frozen=True)
class Product:
    """Programs that are built together.

    Args:
        title: Their name in messages.
        minutes: The build time on two cores, in words.
        targets: The programs, from the folder of the sources.
        check: Raises LocalError if the machine cannot build them.
        beside: Products that are of no use without this one, and are built with it.
        package: The distribution that has the built programs (`local/packaged.py`); "" for none.
    """

    title: str
    minutes: str
    targets: Callable[[Path], tuple[_Target, ...]]
    check: Callable[[], None] | None = None
    beside: tuple[Product, ...] = ()
    package: str = ""


def module_version(go_mod: str, module: str) -> str:
    """Return the version at which a go.mod requires a module.

    Raises:
        LocalError: It does not.
    """
    found = re.search(rf"^\s*(?:require\s+)?{re.escape(module)} (v\S+)", go_mod, re.MULTILINE)
    if not found:
        raise LocalError(f'go.mod does not require "{module}"; the sources are incomplete')
    return found[1]


def _kubernetes_linker(root: Path, module: str, file: str = "go.mod") -> str:
    kubernetes = module_version((root / "go" / module / file).read_text(), "k8s.io/kubernetes")
    major, minor, _ = kubernetes.removeprefix("v").split(".", 2)
    stamps = {
        "gitVersion": kubernetes,
        "gitMajor": major,
        "gitMinor": minor,
        "gitCommit": "",
        "gitTreeState": "clean",
        # A real date would make every build differ.
        "buildDate": "1970-01-01T00:00:00Z",
    }
    # kubectl and the client libraries keep a version of their own.
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(["-s -w", *(f"-X {p}.{key}={value}" for p in packages for key, value in stamps.items())])


def _targets(root: Path, modfile: str = "") -> tuple[_Target, ...]:
    kwok = module_version((root / "go/kwok/go.mod").read_text(), "sigs.k8s.io/kwok")
    linker = _kubernetes_linker(root, "controlplane", modfile or "go.mod")
    return (
        _Target("controlplane", ".", "providerless", linker, modfile=modfile),
        _Target("kwok", "sigs.k8s.io/kwok/cmd/kwok", "", f"-s -w -X sigs.k8s.io/kwok/pkg/consts.Version={kwok}"),
    )


_CONTAINERD = "github.com/containerd/containerd/v2"
_PLUGINS = "github.com/containernetworking/plugins/plugins"
_RUNC = "github.com/opencontainers/runc"
_GVISOR = "gvisor.dev/gvisor"
_CNI = ("main/ptp", "main/loopback", "ipam/host-local", "meta/portmap", "meta/bandwidth")


def _node_targets(root: Path) -> tuple[_Target, ...]:
    def version(module: str, path: str) -> str:
        return module_version((root / "go" / module / "go.mod").read_text(), path)

    def part(name: str, module: str, package: str, linker: str = "-s -w") -> _Target:
        # The tag is the one of the control plane, so that what they share is compiled once.
        return _Target(name, package, "providerless", linker, module)

    containerd = f"-s -w -X {_CONTAINERD}/version.Version={version('node-containerd', _CONTAINERD)}"
    runc = f"-s -w -linkmode external -extldflags -static -X main.version={version('node-runc', _RUNC).lstrip('v')}"
    gvisor = f"-s -w -X {_GVISOR}/runsc/version.version={version('node-gvisor', _GVISOR)}"
    return (
        part("node-pause", "node-pause", "."),
        *(part(path.rpartition("/")[2], "node-cni", f"{_PLUGINS}/{path}") for path in _CNI),
        _Target("runc", _RUNC, "seccomp netgo osusergo", runc, "node-runc", cgo=True),
        *(
            part(name, "node-containerd", f"{_CONTAINERD}/cmd/{name}", containerd)
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        ),
        part("node-kube", "node-kube", ".", _kubernetes_linker(root, "node-kube")),
        part("runsc", "node-gvisor", f"{_GVISOR}/runsc", gvisor),
        part("containerd-shim-runsc-v1", "node-gvisor", "."),
    )


def _hosted_targets(root: Path) -> tuple[_Target, ...]:
    return (_Target("hosted", ".", "providerless", _kubernetes_linker(root, "hosted")),)


def hosted(version: str) -> Product:
    """Return hosted control planes of another version than the default, which have a go-VERSION.mod."""
    file = f"go-{version}.mod"

    def targets(root: Path) -> tuple[_Target, ...]:
        linker = _kubernetes_linker(root, "hosted", file)
        return (_Target("hosted", ".", "providerless", linker, modfile=file),)

    return Product(f"hosted control planes of Kubernetes {version}", HOSTED.minutes, targets, beside=HOSTED.beside)


def controlplane(version: str) -> Product:
    """Return the programs of local clusters of another version than the default, which have a go-VERSION.mod."""
    title = f"{CONTROL_PLANE.title} of Kubernetes {version}"
    return Product(title, CONTROL_PLANE.minutes, lambda root: _targets(root, f"go-{version}.mod"))


def kubelets(version: str) -> Product:
    """Return kubelet and kube-proxy of another version than that of `NODES`, which have a go-VERSION.mod."""
    file = f"go-{version}.mod"

    def targets(root: Path) -> tuple[_Target, ...]:
        linker = _kubernetes_linker(root, "node-kube", file)
        return (_Target("node-kube", ".", "providerless", linker, modfile=file),)

    return Product(f"kubelet and kube-proxy of Kubernetes {version}", "six minutes", targets)


def _conformance_targets(root: Path) -> tuple[_Target, ...]:
    # Pods of the tests run these two.
    packages = ("k8s.io/sample-apiserver", "k8s.io/kubernetes/test/images/nonewprivs")
    images = (_Target(each.rpartition("/")[2], each, "providerless", "-s -w", "conformance") for each in packages)
    return (_Target("conformance", ".", "providerless", _kubernetes_linker(root, "conformance")), *images)


def _check_compiler() -> None:
    """Check that the machine can compile runc, the only program with parts in C.

    Raises:
        LocalError: Something is missing: what, and how to install it.
    """
    missing = [program for program in ("gcc", "pkg-config") if shutil.which(program) is None]
    if not missing:
        asked = subprocess.run(["pkg-config", "--exists", "libseccomp"], check=False, timeout=30)  # noqa: S607 - found on PATH
        missing = ["libseccomp"] if asked.returncode else []
    if missing:
        raise LocalError(
            f"runc cannot be compiled: there is no {' and no '.join(missing)} on this machine; "
            "`apt-get install gcc pkg-config libseccomp-dev` gets them on Debian"
        )


def _plain(name: str, package: str = ".", module: str = "") -> Callable[[Path], tuple[_Target, ...]]:
    # The tag is the one of the other programs, so that the packages that they share are compiled once.
    return lambda _: (_Target(name, package, "providerless", "-s -w", module),)


_CLUSTER_API = "sigs.k8s.io/cluster-api"


def _cluster_api_targets(root: Path) -> tuple[_Target, ...]:
    parts = {
        "clusterapi": "core",
        "clusterapi-kubeadm": "bootstrap/kubeadm",
        "clusterapi-kubeadm-control-plane": "controlplane/kubeadm",
    }
    return tuple(
        target
        for name, folder in parts.items()
        for target in _plain(name, f"{_CLUSTER_API}/{folder}", "clusterapi")(root)
    )


CONTROL_PLANE = Product("the local control plane", "four minutes", _targets, package="tenantry-controlplane")
NODES = Product("the programs of nodes", "ten minutes", _node_targets, _check_compiler)
"""containerd, runc, gVisor, kubelet, kube-proxy and the CNI plugins."""
DNS = Product("CoreDNS", "two minutes", _plain("coredns"))
"""CoreDNS with the plugin `tenantry`; only real nodes need it."""
AGNHOST = Product("agnhost", "one minute", _plain("agnhost", "k8s.io/kubernetes/test/images/agnhost", "node-agnhost"))
"""The program of Kubernetes' own tests; only tests need it."""
PROBE = Product("the probe of audits", "half a minute", _plain("probe"))
"""The program that pods of `tenantry audit --probe` run."""
REGISTRY = Product("a registry of images", "half a minute", _plain("registry"))
"""A registry in memory behind a password; only tests need it."""
HELM = Product("Helm", "two minutes", _plain("helm", "helm.sh/helm/v4/cmd/helm"))
"""The client of Helm; only tests need it."""
KREW = Product("krew", "one minute", _plain("krew", "sigs.k8s.io/krew/cmd/krew"))
"""The plugin manager of kubectl; only tests need it."""
CLUSTER_API = Product("Cluster API", "four minutes", _cluster_api_targets)
"""The operator of Cluster API and its two kubeadm providers, with kinds and webhooks; only tests need it."""
CLUSTERCTL = Product("clusterctl", "two minutes", _plain("clusterctl", f"{_CLUSTER_API}/cmd/clusterctl", "clusterapi"))
"""The command of Cluster API; only tests need it."""
S3_GATEWAY = Product("an S3-compatible server", "half a minute", _plain("s3gateway"))
"""A server whose buckets are folders; only tests need it."""
ENDPOINT_PROXY = Product("the endpoint proxy", "half a minute", _plain("endpoint-proxy"))
"""The program that accepts the connections to hosted control planes. Its changes must not cost a build of HOSTED."""
SIDECAR = Product("the sidecar of hosted control planes", "half a minute", _plain("hosted-sidecar"))
"""The program that connects hosted control planes in Pods; only their image has it."""
HOSTED_ETCD = Product("etcd", "one minute", _plain("hosted-etcd"))
"""The server of etcd, which the image of hosted control planes has."""
HOSTED = Product("hosted control planes", "six minutes", _hosted_targets, beside=(ENDPOINT_PROXY,))
"""An API server, controllers and SQLite in one process."""
CONFORMANCE = Product("Kubernetes' end-to-end tests", "fifteen minutes", _conformance_targets)
"""test/e2e of Kubernetes; only the release test of conformance needs it."""
PRODUCTS = (
    CONTROL_PLANE,
    NODES,
    DNS,
    AGNHOST,
    PROBE,
    REGISTRY,
    HOSTED,
    ENDPOINT_PROXY,
    SIDECAR,
    HOSTED_ETCD,
    CONFORMANCE,
    S3_GATEWAY,
    HELM,
    KREW,
    CLUSTER_API,
    CLUSTERCTL,
)


def fingerprint(root: Path, product: Product = CONTROL_PLANE) -> str:
    """Return 16 hexadecimal digits for the sources below a folder, the flags and this platform."""
    digest = hashlib.sha256()
    for target in product.targets(root):
        digest.update(repr((_LAYOUT, _FLAGS, _STAGES, target, platform.system(), platform.machine())).encode())
        folder = root / "go" / target.folder
        for file in sorted(path for path in folder.rglob("*") if _is_source(path, target)):
            digest.update(f"\0{file.relative_to(folder)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _is_source(file: Path, target: _Target) -> bool:
    # Tests do not change the programs.
    return file.name in target.module_files or (file.suffix == ".go" and not file.stem.endswith("_test"))


def built(product: Product = CONTROL_PLANE) -> Binaries | None:
    """Return the programs of a product if they are in the cache already."""
    folder = paths.cache() / "bin" / fingerprint(sources.root(), product)
    return Binaries(folder) if folder.is_dir() else None


def ensure(progress: Progress, product: Product = CONTROL_PLANE, *, again: bool = False) -> Binaries:
    """Return the programs of a product; if the cache has none, unpack or build them.

    Programs of an installed package are unpacked, and save the build. Two builds at once do not race: the second waits
    for the first and takes what it made.

    Args:
        progress: Shows what is being built.
        product: The product.
        again: Build even if the cache or a package has them.

    Raises:
        LocalError: No toolchain, no network, a full disk, a damaged package, or a compiler's complaint, with the end of
            the log.
    """
    for each in product.beside:
        ensure(progress, each, again=again)
    found = None if again else built(product)
    if found:
        return found
    root = sources.root()
    folder = paths.cache() / "bin" / fingerprint(root, product)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise explain(error, folder.parent) from error
    waiting = "another build is running; waiting for it"
    with holding(folder.parent / "build.lock", on_wait=lambda: progress.say(waiting)):
        if folder.is_dir() and not again:
            return Binaries(folder)
        if product.package and not again and _unpacked(product, folder, progress):
            return Binaries(folder)
        # On a full disk, only the linker would fail, after minutes of compilation.
        check_space(folder.parent, _NEEDED_MIB)
        if product.check:
            product.check()
        go = toolchain.find(progress)
        progress.say(f"building {product.title} with {go.version} (once; about {product.minutes} on two cores)")
        try:
            _build(product, root, folder, go, progress)
        except OSError as error:
            raise explain(error, folder) from error
    return Binaries(folder)


def _unpacked(product: Product, folder: Path, progress: Progress) -> bool:
    """Fill the folder from an installed package; return whether one has these programs."""
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unpacking-") as temporary:
            unfinished = Path(temporary) / "bin"
            unfinished.mkdir()
            is_whole = packaged.unpack(product.package, folder.name, unfinished, progress)
            if is_whole:
                unfinished.rename(folder)
            return is_whole
    except OSError as error:
        raise explain(error, folder) from error


def _build(product: Product, root: Path, folder: Path, go: toolchain.GoToolchain, progress: Progress) -> None:
    log = folder.parent.parent / "build.log"
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as temporary, log.open("wb") as output:
        unfinished = Path(temporary) / "bin"
        unfinished.mkdir()
        for target in product.targets(root):
            compilation = Compilation(
                go=go,
                folder=root / "go" / target.folder,
                package=target.package,
                arguments=(*_FLAGS, *target.flags, "-tags", target.tags, "-ldflags", target.linker),
                output=unfinished / target.name,
                cgo=target.cgo,
            )
            if not run(compilation, target.name, output, progress):
                raise LocalError(complaints.about(target.name, log))
        if Binaries(unfinished).controlplane.exists():
            (unfinished / "kubectl").symlink_to("controlplane")
            (unfinished / "kwok-stages.yaml").write_text(_stages(go, root))
        if Binaries(unfinished).hosted.exists():
            _write_openapi(Binaries(unfinished), output, log)
            _write_prebuilt(Binaries(unfinished), output, log)
        seconds = round(time.monotonic() - started, 1)
        about = {"go": go.version, "seconds": seconds, "fingerprint": folder.name}
        (unfinished / "build.json").write_text(json.dumps(about, indent=2) + "\n")
        if folder.is_dir():
            # Running clusters keep their open files.
            folder.rename(Path(temporary) / "old")
        unfinished.rename(folder)
    progress.say(f"built in {seconds:.0f} s")


def _stages(go: toolchain.GoToolchain, root: Path) -> str:
    found = subprocess.run(
        [go.binary, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"],
        cwd=root / "go" / "kwok",
        env=go.environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    folder = Path(found.stdout.strip() or "/nonexistent") / "kustomize" / "stage"
    try:
        return "---\n".join((folder / name).read_text().rstrip("\n") + "\n" for name in _STAGES)
    except OSError as error:
        raise LocalError(f"kwok's module has not the stages that are expected: {error}") from error


def _write_openapi(binaries: Binaries, output: IO[bytes], log: Path) -> None:
    """Have the new program write the OpenAPI documents of its built-in kinds."""
    _run_hosted((binaries.hosted, "openapi", binaries.openapi), output, log)


def _write_prebuilt(binaries: Binaries, output: IO[bytes], log: Path) -> None:
    """Have the new program write the database with which control planes begin."""
    command = (binaries.hosted, "prebuild", binaries.prebuilt, ",".join(CONTROLLERS))
    _run_hosted(command, output, log)


def _run_hosted(command: tuple[Path | str, ...], output: IO[bytes], log: Path) -> None:
    try:
        code = subprocess.run(command, stdout=output, stderr=output, timeout=_HOSTED_SECONDS, check=False).returncode
    except subprocess.TimeoutExpired:
        code = "no result in time"
    if code:
        lines = "\n".join(f"    {line}" for line in tail(log, 12))
        raise LocalError(f'"hosted {command[1]}" ended with {code}. The end of "{log}":\n{lines}')


def cached() -> list[Path]:
    """List the folders of programs in the cache, those in use included."""
    try:
        return sorted(path for path in (paths.cache() / "bin").iterdir() if path.is_dir())
    except FileNotFoundError:
        return []


def remove(folder: Path) -> int:
    """Remove a folder of programs; return its size in bytes."""
    size = sum(os.lstat(file).st_size for file in folder.rglob("*"))
    shutil.rmtree(folder)
    return size
