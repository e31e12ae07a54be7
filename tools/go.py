"""Run go or gofmt as the local control plane's build does: `python tools/go.py vet ./...` in each module of go/.

"gofmt" as the only argument runs that instead, once for all of go/, and fails if any file would be changed;
"staticcheck" runs the one that go/staticcheck locks; "race" runs the tests with the detector of data races, which needs
a C compiler, in the modules that have tests and do not build Kubernetes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tenantry.local import toolchain
from tenantry.local.progress import StreamProgress

ROOT = Path(__file__).resolve().parent.parent
# Kubernetes' end-to-end tests take many minutes to compile, and only the release tests build them.
RELEASE_ONLY = ROOT / "go" / "conformance"


def main() -> int:
    """Run it in every module; return the first exit code that is not 0."""
    go = toolchain.find(StreamProgress())
    # The flags of the build (local/build.py): with others Go would compile all of Kubernetes a second time.
    environment = go.environment | {"GOFLAGS": "-mod=readonly -trimpath -buildvcs=false -tags=providerless"}
    arguments = sys.argv[1:]
    if arguments[:1] == ["gofmt"]:
        found = subprocess.run(
            [go.binary.resolve().parent / "gofmt", "-l", ROOT / "go"], capture_output=True, text=True, check=True
        ).stdout
        if found:
            print(f"not formatted as gofmt does:\n{found}", end="", file=sys.stderr)
        return 1 if found else 0
    if arguments[:1] == ["staticcheck"]:
        arguments = ["tool", f"-modfile={ROOT / 'go' / 'staticcheck' / 'go.mod'}", "staticcheck", "./..."]
    modules = [
        module
        for module in sorted(ROOT.glob("go/*/go.mod"))
        if any(module.parent.glob("*.go")) and module.parent != RELEASE_ONLY
    ]
    if arguments == ["race"]:
        arguments = ["test", "-race", "-vet=off", "./..."]
        environment["CGO_ENABLED"] = "1"
        modules = [
            module
            for module in modules
            if any(module.parent.rglob("*_test.go")) and "k8s.io/kubernetes v" not in module.read_text()
        ]
    # All modules are checked before the first failure is returned.
    codes = [
        subprocess.run([go.binary, *arguments], cwd=module.parent, env=environment, check=False).returncode
        for module in modules
    ]
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
