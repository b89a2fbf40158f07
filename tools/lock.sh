#!/usr/bin/env bash
# Install the newest versions that pyproject.toml allows in a temporary environment. Write them to the lock file, and the
# hashes of all their files to every lock file.
set -euo pipefail
cd "$(dirname "$0")/.."

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
"${PYTHON:-python3}" -m venv "$fresh"
"$fresh/bin/pip" install --quiet --disable-pip-version-check ".[dev]"
pins=$("$fresh/bin/pip" freeze --disable-pip-version-check --exclude oncecast | tr 'A-Z_' 'a-z-')
printf '# Every version that `make` installs. Rewritten by `make lock`.\n%s\n' "$pins" > requirements.lock
"$fresh/bin/python" -m tools.lock_hashes requirements.lock requirements-docs.lock requirements-bench.lock
