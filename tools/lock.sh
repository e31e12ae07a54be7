#!/bin/sh
# Write requirements/*.txt anew from pyproject.toml: exact versions with hashes, naming no registry. Needs `uv`.
set -eu
lock() { uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet --upgrade "$@"; }
lock pyproject.toml --group build -o requirements/run.txt
# Of the versions of run.txt: what the image of the operator has, without the tools that build a wheel.
lock pyproject.toml --constraint requirements/run.txt -o requirements/operator.txt
lock pyproject.toml --group dev -o requirements/dev.txt
lock --group go -o requirements/go.txt
lock --group docs -o requirements/docs.txt
