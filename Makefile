# Everything from nothing: `make demo` or `make test` set up what they need (tools/setup.py) and do it only once.

# The first Python that is new enough. A pyenv shim counts only if there is a Python behind it.
PYTHON = $(shell for p in .venv/bin/python python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)

define SETUP
@p="$(PYTHON)"; test -n "$$p" || { echo "Python 3.11 or newer is needed: install one, or name it: make PYTHON=/path/to/python3.12" >&2; exit 1; }; "$$p" tools/setup.py
endef

# Tests start hundreds of Python processes; each would compile Tenantry anew where the machine's settings say this.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-fast test-release check docs wheels krew image lock clean

help: ## Show the targets.
	@sed -n 's/^\([a-z-]*\): ## /  make \1\t/p' Makefile

setup: ## Make .venv and build the local control plane; then .venv/bin/tenantry is the command.
	$(SETUP) demo

demo: ## Start a local cluster with three tenants in it and show them.
	$(SETUP) demo
	@.venv/bin/python tools/demo.py

# Tests wait for controllers about half of the time: three workers keep two cores busy.
test: ## Run all tests: unit, property, integration on a real control plane, end to end, docs.
	$(SETUP) dev
	.venv/bin/tenantry local build --with-hosted --kubernetes-version 1.34
	.venv/bin/python tools/testprograms.py
	.venv/bin/python tools/go.py test -vet=off ./...
	TENANTRY_TEST_REAL=$${TENANTRY_TEST_REAL:-0} \
		.venv/bin/pytest -n 3 -m "not long" --dist loadfile --no-loadscope-reorder --durations=20 --durations-min=1 $(PYTEST_ARGS)

test-fast: ## Run the unit and property tests, in random order: no cluster, less than a minute.
	$(SETUP) dev
	.venv/bin/pytest -n 2 tests/unit tests/property $(PYTEST_ARGS)

RELEASE_TESTS = tests/e2e tests/integration/test_parameters.py tests/integration/test_quota_chaos.py tests/integration/test_peers_chaos.py tests/integration/test_engine_clusters.py \
	tests/integration/test_slices_nodes.py tests/integration/test_audit_probe.py tests/integration/test_parts_real.py $(wildcard tests/integration/test_real_*.py)

test-release: ## Run the long suites: more examples, chaos for a minute, many clusters, conformance, real nodes (see docs/how-to/real-nodes.md).
	$(SETUP) dev
	.venv/bin/tenantry local build --with-hosted --with-conformance --kubernetes-version 1.34
	.venv/bin/python tools/testprograms.py --release
	.venv/bin/python tools/go.py race
	.venv/bin/pytest -q -n 2 --hypothesis-profile=release tests/property
	CHAOS_SECONDS=60 TENANTRY_TEST_FLOOD_MEGABYTES=465 TENANTRY_TEST_CLAIMS=100 TENANTRY_TEST_REAL=1 \
		.venv/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=20 $(RELEASE_TESTS) $(PYTEST_ARGS)
	.venv/bin/pytest -n 2 -m long --dist loadfile --no-loadscope-reorder --durations=20 $(addprefix --ignore=,$(RELEASE_TESTS)) $(PYTEST_ARGS)

check: ## Lint, types, layers, generated files.
	$(SETUP) dev
	@.venv/bin/python tools/check.py

docs: ## Build the documentation site into site/; dead links and missing anchors fail.
	$(SETUP) docs
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --clean

wheels: ## Build the wheels into dist/: tenantry, and tenantry-controlplane with the built programs of local clusters.
	$(SETUP) dev
	.venv/bin/python tools/wheels.py

krew: ## Make the plugin of kubectl for krew in dist/: an archive with the libraries of each Python, and its manifest.
	$(SETUP) dev
	.venv/bin/python tools/krew.py

image: ## Build the OCI images into dist/ with bills of materials, without a container engine; the operator's on Debian 12.
	$(SETUP) dev
	.venv/bin/python tools/images.py $(IMAGES)

lock: ## Write requirements/*.txt anew (needs uv).
	sh tools/lock.sh

clean: ## Remove .venv and the files that tools write; local clusters stay (`tenantry down --all --purge`).
	rm -rf .venv .venv-docs site dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
