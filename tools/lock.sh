#!/usr/bin/env bash
# Installs the newest versions that pyproject.toml allows into a throw-away environment and writes them down.
set -euo pipefail
cd "$(dirname "$0")/.."

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
"${PYTHON:-python3}" -m venv "$fresh"
"$fresh/bin/pip" install --quiet ".[dev]"
{
    echo "# Every version that \`make\` installs. Rewritten by \`make lock\`."
    "$fresh/bin/pip" freeze --exclude oncecast
} > requirements.lock
