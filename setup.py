"""The part of the build that pyproject.toml cannot say: C programs are compiled, and man pages installed."""

from __future__ import annotations

import runpy
import subprocess
from collections.abc import Iterator
from pathlib import Path

from setuptools import Command, Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
RECIPE = runpy.run_path(str(ROOT / "hardware" / "build.py"))
PROGRAMS = {RECIPE["FABRICD"]: RECIPE["SOURCES"], **RECIPE["OTHERS"]}  # with the folders of their sources


class BuildFabricd(Command):
    """Compile what PROGRAMS names to hardware/bin of the package (in place when editable)."""

    description = "compile fabricd, the holder, and libraries for ranks"
    user_options = []
    editable_mode = False

    def initialize_options(self) -> None:
        self.build_lib: str | None = None
        self.build_temp: str | None = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build", ("build_lib", "build_lib"), ("build_temp", "build_temp"))

    def run(self) -> None:
        if self.editable_mode:
            RECIPE["build_all"]()
            return
        for output, sources in zip(map(Path, self.get_outputs()), PROGRAMS.values(), strict=True):
            objects = Path(self.build_temp, output.name).absolute()
            RECIPE["build"](output.absolute(), sources=sources, objects=objects)

    def get_source_files(self) -> list[str]:
        folders = [sources.relative_to(ROOT) for sources in PROGRAMS.values()]
        kinds = ("*.[ch]", "*.def", "*.map")
        return [source for folder in folders for source in files(*(f"{folder}/**/{kind}" for kind in kinds))]

    def get_outputs(self) -> list[str]:
        return [str(Path(self.build_lib, output.relative_to(ROOT))) for output in PROGRAMS]

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class Build(build):
    sub_commands = [*build.sub_commands, ("build_fabricd", None)]

    def run(self) -> None:
        super().run()
        note_commit(Path(self.build_lib))


class Archive(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        note_commit(Path(base_dir))


def note_commit(tree: Path) -> None:
    """Where `testbed --version` and runs look for it (results/store/environment.py)."""
    if commit := said_commit():
        (tree / "results" / "COMMIT").write_text(f"{commit}\n")


def said_commit() -> str:
    """Of a checkout; of a source archive what that was told."""
    written = ROOT / "results" / "COMMIT"
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    if asked.returncode or not (ROOT / ".git").exists():
        return written.read_text().strip() if written.exists() else ""
    return asked.stdout.strip()


class PlatformWheel(bdist_wheel):
    """Bound to the platform because of fabricd, but to no version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class PlatformDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


def files(*patterns: str) -> list[str]:
    return sorted(str(p.relative_to(ROOT)) for pattern in patterns for p in ROOT.glob(pattern) if p.is_file())


def shared(*folders: str) -> Iterator[tuple[str, list[str]]]:
    """The folders as they are, for `testbed examples` (testbed/doctor/shipped.py)."""
    kept: dict[str, list[str]] = {}
    for file in files(*(f"{folder}/**/*" for folder in folders)):
        if "__pycache__" not in file and file != "docs/site.py":  # that makes the site, from a checkout
            kept.setdefault(f"share/railbed/{Path(file).parent}", []).append(file)
    yield from kept.items()


setup(
    distclass=PlatformDistribution,
    cmdclass={"build": Build, "build_fabricd": BuildFabricd, "sdist": Archive, "bdist_wheel": PlatformWheel},
    data_files=[
        *((f"share/man/man{page[-1]}", [page]) for page in files("hardware/*.[1-9]")),
        *shared("experiments", "docs"),
    ],
)
