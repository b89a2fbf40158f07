"""Build the source archive and the wheel, and check that the build is reproducible.

    python -m tools.dist [DIRECTORY]

Builds both files twice, from two copies of the committed files. The copies have different
directories and modification times. If the results are equal, writes them to DIRECTORY (default:
dist) with SHA256SUMS. Uncommitted changes are not included.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout


def export(into: Path, revision: str = "HEAD") -> None:
    """Write the committed files to a directory."""
    with tarfile.open(fileobj=io.BytesIO(git("archive", revision))) as archive:
        archive.extractall(into, filter="data")


def build(source: Path, into: Path, epoch: int) -> None:
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
    words = [sys.executable, "-m", "hatchling", "build", "-d", str(into)]
    subprocess.run(words, cwd=source, env=environment, check=True, capture_output=True)


def digests(directory: Path) -> dict[str, str]:
    """Return the SHA-256 digest of each file, by name."""
    return {
        each.name: hashlib.sha256(each.read_bytes()).hexdigest()
        for each in sorted(directory.iterdir())
    }


def main(words: Sequence[str]) -> int:
    target = Path(words[0]) if words else ROOT / "dist"
    epoch = int(git("show", "--no-patch", "--format=%ct", "HEAD"))
    with tempfile.TemporaryDirectory() as directory:
        found, built = [], Path(directory)
        for number, name in enumerate(("first", "another place")):
            source, built = Path(directory, name), Path(directory, f"built{number}")
            source.mkdir()
            export(source)
            for each in source.rglob("*"):
                os.utime(each, (number, number))
            build(source, built, epoch)
            found.append(digests(built))
        if found[0] != found[1]:
            changed = [name for name in found[0] if found[0][name] != found[1].get(name)]
            print(f"the build is not reproducible: {', '.join(changed)}", file=sys.stderr)
            return 1
        target.mkdir(parents=True, exist_ok=True)
        for each in sorted(built.iterdir()):
            shutil.copy(each, target)
            print(f"{found[0][each.name]}  {each.name}")
    sums = "".join(f"{digest}  {name}\n" for name, digest in found[0].items())
    (target / "SHA256SUMS").write_text(sums)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
