"""Whether what `make build` made is whole: the files of the source tree, and a demo that runs where nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "collegium"
LEFT_BEHIND = (".pyc", ".pyo")


def main() -> None:
    """Check the only wheel and the only source distribution in dist/."""
    (wheel,) = (ROOT / "dist").glob("*.whl")
    (sdist,) = (ROOT / "dist").glob("*.tar.gz")
    expected = _source_files()
    _same_files(wheel.name, _in_wheel(wheel), expected)
    _same_files(sdist.name, _in_sdist(sdist), expected)
    _run_the_demo_of(wheel, sdist)
    print(f"{wheel.name}, {sdist.name}: {len(expected)} files each; both run the demo in an empty environment.")


def _source_files() -> set[str]:
    found = (path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in LEFT_BEHIND)
    return {path.relative_to(PACKAGE.parent).as_posix() for path in found}


def _in_wheel(wheel: Path) -> set[str]:
    names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if ".dist-info/" not in name}


def _in_sdist(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        names = [member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()]
    return {name.removeprefix("src/") for name in names if name.startswith("src/collegium/")}


def _same_files(archive: str, found: set[str], expected: set[str]) -> None:
    if found != expected:
        missing, surplus = sorted(expected - found), sorted(found - expected)
        sys.exit(f"{archive} does not hold what src/collegium does. Missing: {missing}. Too many: {surplus}.")


def _run_the_demo_of(wheel: Path, sdist: Path) -> None:
    """Installed from the archives alone: neither this checkout nor its environment is on the path."""
    with tempfile.TemporaryDirectory() as folder:
        home, work = Path(folder) / "venv", Path(folder) / "work"
        venv.create(home, with_pip=True)
        work.mkdir()
        clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        pip = [home / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
        for command in (
            [*pip, "install", "-c", ROOT / "constraints.txt", wheel],
            [*pip, "check"],
            [home / "bin" / "collegium", "demo"],
            [*pip, "install", "--no-deps", "--force-reinstall", sdist],
            [home / "bin" / "collegium", "demo", "--force"],
        ):
            subprocess.run(command, cwd=work, env=clean, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
