"""What is built and shipped: fabricd from its sources, the source archive, the wheel, and the set-up script."""

import os
import pwd
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from hardware import build

ROOT = Path(__file__).resolve().parents[2]


# --- fabricd ---------------------------------------------------------------


@pytest.fixture
def sources(tmp_path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "answer.h").write_text("int answer(void);\n#define EXTRA 0\n")
    (folder / "answer.c").write_text('#include "answer.h"\nint answer(void) { return 42 + EXTRA; }\n')
    (folder / "main.c").write_text('#include "answer.h"\nint main(void) { return answer(); }\n')
    for file in folder.iterdir():
        os.utime(file, (1, 1))
    return folder


def value(program: Path) -> int:
    return subprocess.run([program]).returncode


def test_builds_only_what_is_older(sources, tmp_path, monkeypatch):
    commands: list[list[str]] = []
    real = build._run
    monkeypatch.setattr(build, "_run", lambda command: (commands.append(command), real(command))[1])
    output = tmp_path / "bin" / "fabricd"

    def built() -> list[str]:
        commands.clear()
        assert build.build(output, sources=sources) == output
        return sorted(Path(c[c.index("-c") + 1]).name if "-c" in c else "link" for c in commands)

    assert built() == ["answer.c", "link", "main.c"]
    assert value(output) == 42
    assert built() == []

    (sources / "answer.c").write_text('#include "answer.h"\nint answer(void) { return 43 + EXTRA; }\n')
    assert built() == ["answer.c", "link"]
    assert value(output) == 43

    (sources / "answer.h").write_text("int answer(void);\n#define EXTRA 1\n")
    assert built() == ["answer.c", "link", "main.c"]
    assert value(output) == 44

    room = sources / "room"  # a header of its own, and a file of a name that there is already
    room.mkdir()
    (room / "room.h").write_text("#define ROOM 1\n")
    (room / "answer.c").write_text('#include "room/room.h"\nint room(void);\nint room(void) { return ROOM; }\n')
    assert built() == ["answer.c", "link"]
    (room / "room.h").write_text("#define ROOM 2\n")
    assert built() == ["answer.c", "link"]
    assert value(output) == 44


def test_a_source_that_is_gone_is_gone(sources, tmp_path):
    (sources / "spare.c").write_text("int spare(void);\nint spare(void) { return 1; }\n")
    output = build.build(tmp_path / "fabricd", sources=sources)
    assert b"spare" in output.read_bytes()
    (sources / "spare.c").unlink()
    build.build(output, sources=sources)
    assert b"spare" not in output.read_bytes()


@pytest.mark.parametrize(
    ("body", "caught"),
    [
        ("char *volatile p = malloc(8); free(p); return p[0];", "heap-use-after-free"),
        ("volatile int i = 2147483647; return i + 1;", "signed integer overflow"),
    ],
)
def test_sanitized_build_catches_what_the_other_does_not(sources, tmp_path, body, caught):
    (sources / "answer.c").write_text(f'#include <stdlib.h>\n#include "answer.h"\nint answer(void) {{ {body} }}\n')
    program = build.build(tmp_path / "sanitized", sources=sources, sanitize=True)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode != 0 and caught in done.stderr


def test_a_warning_is_an_error_and_is_shown(sources, tmp_path):
    (sources / "answer.c").write_text('#include "answer.h"\nint answer(void) { int unused; return 1; }\n')
    with pytest.raises(build.BuildError, match="unused"):
        build.build(tmp_path / "fabricd", sources=sources)
    assert not (tmp_path / "fabricd").exists()


def test_no_compiler_and_no_sources(sources, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler -x")
    with pytest.raises(build.BuildError, match="no C compiler called no-such-compiler: apt-get install gcc"):
        build.build(tmp_path / "fabricd", sources=sources)
    (tmp_path / "empty").mkdir()
    with pytest.raises(build.BuildError, match="no C sources"):
        build.build(tmp_path / "fabricd", sources=tmp_path / "none")


def test_a_place_that_cannot_be_written_is_said_with_who_owns_the_checkout(sources, monkeypatch):
    with pytest.raises(build.BuildError, match="^cannot write /sys/railbed: "):
        build.build(Path("/sys/railbed/fabricd"), sources=sources)

    def refused(*_):
        raise PermissionError(13, "Permission denied", "bin/lock")

    monkeypatch.setattr(build, "_build", refused)
    monkeypatch.setattr("os.geteuid", lambda: build.HERE.stat().st_uid + 1000)
    owner = pwd.getpwuid(build.HERE.stat().st_uid).pw_name
    what = f"cannot write bin/lock: Permission denied; the checkout belongs to {owner}: use sudo, or a checkout "
    with pytest.raises(build.BuildError, match=f"^{what}"):
        build.build(sources=sources)


def test_builds_at_the_same_time(sources, tmp_path):
    code = (
        "import sys; from pathlib import Path; from hardware import build\n"
        f"build.build(Path({str(tmp_path / 'fabricd')!r}), sources=Path({str(sources)!r}))"
    )
    running = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) for _ in range(4)]
    assert [p.wait(60) for p in running] == [0] * 4
    assert value(tmp_path / "fabricd") == 42


# --- the package -----------------------------------------------------------


COMMIT = "2718281828459045"

QUICK_CC = """#!/bin/sh
# That all that a source includes is there, the preprocessor tells; what comes of it is known from this checkout.
for word in "$@"; do
    case $before in -o) to=$word ;; -c) compiles=yes ;; esac
    before=$word
done
[ "$compiles" ] || exec cc "$@"
rest=${{to#*/temp.*/}}
cc "$@" -E && exec cp "{ours}/.${{rest%%/*}}.o/${{rest#*/}}" "$to"
"""


@pytest.fixture(scope="module")
def archives(tmp_path_factory) -> Path:
    """A source archive, and the wheel built from that (so the archive is complete)."""
    tree = tmp_path_factory.mktemp("tree") / "railbed"
    left_out = shutil.ignore_patterns(".*", "bin", "build", "dist", "*.egg-info", "runs", "__pycache__")
    shutil.copytree(ROOT, tree, ignore=left_out)
    (tree / "results" / "COMMIT").write_text(f"{COMMIT}\n")  # as a source archive made in a checkout has it
    out = tmp_path_factory.mktemp("dist")
    build.build_all()
    quick = out / "cc"
    quick.write_text(QUICK_CC.format(ours=build.FABRICD.parent))
    quick.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(tree)],
        capture_output=True,
        text=True,
        env={**os.environ, "CC": str(quick)},
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return out


def test_source_archive_holds_what_a_build_needs(archives):
    (archive,) = archives.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {
        "setup.sh",
        "setup.py",
        "pyproject.toml",
        "requirements.lock",
        "requirements-dev.lock",
        "hardware/fabricd/main.c",
    } <= names
    assert {"experiments/quickstart.yaml", "docs/experiment.md", "tests/live/test_packaging.py"} <= names
    assert "hardware/bin/fabricd" not in names


def test_the_wheel_has_the_drills(archives):
    """All of them, their suites, and the tables that are read beside them."""
    (wheel,) = archives.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if name.startswith("drills/catalogue/")}
    assert shipped == {
        str(path.relative_to(ROOT)) for path in (ROOT / "drills" / "catalogue").rglob("*.*") if path.is_file()
    }


def test_wheel_is_for_the_platform_and_any_python(archives):
    (wheel,) = archives.glob("*.whl")
    assert re.fullmatch(r"railbed-[0-9.]+-py3-none-linux_\w+\.whl", wheel.name)


def test_installed_from_the_wheel_everything_is_there(archives, tmp_path):
    (wheel,) = archives.glob("*.whl")
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(site), str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(site)}

    help_text = subprocess.run(
        [sys.executable, "-m", "testbed", "--help"], capture_output=True, text=True, cwd=tmp_path, env=environment
    ).stdout
    for file in (ROOT / "testbed" / "commands").glob("[!_]*.py"):
        assert f"\n  {file.stem} " in help_text

    version = [sys.executable, "-m", "testbed", "--version"]
    said = subprocess.run(version, capture_output=True, text=True, cwd=tmp_path, env=environment).stdout
    assert said.endswith(f" ({COMMIT})\n")

    fabricd = site / "hardware" / "bin" / "fabricd"
    assert os.access(fabricd, os.X_OK)
    assert "usage: fabricd" in subprocess.run([fabricd], capture_output=True, text=True).stderr
    examples = [sys.executable, "-m", "testbed", "examples", "study"]
    subprocess.run(examples, capture_output=True, check=True, cwd=tmp_path, env=environment)
    for folder in ("experiments", "docs"):
        ours = {p.relative_to(ROOT) for p in (ROOT / folder).rglob("*.*") if "__pycache__" not in p.parts}
        assert {p.relative_to(tmp_path / "study") for p in (tmp_path / "study" / folder).rglob("*.*")} == (
            ours - {Path("docs/site.py")}
        )
    own = Path("testbed/serve/pages")
    served = {p.relative_to(ROOT / own) for p in (ROOT / own).rglob("*")}
    assert served == {p.relative_to(site / own) for p in (site / own).rglob("*")}
    columns = [sys.executable, "-c", "from results.frames.columns import as_markdown; print(as_markdown())"]
    said = subprocess.run(columns, capture_output=True, text=True, cwd=tmp_path, env=environment).stdout
    assert "| `np_cnp_sent` |" in said, "tables of fabricd's that Python reads are there, too"
    with zipfile.ZipFile(wheel) as archive:
        pages = [n for n in archive.namelist() if "/share/man/" in n]
    assert len(pages) == len(list(ROOT.glob("hardware/*.[1-9]")))


def test_every_layer_is_packaged(archives):
    (wheel,) = archives.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packaged = set(archive.namelist())
    for layer in ("topologies", "controllers", "workloads", "hardware", "testbed", "results"):
        for file in (ROOT / layer).rglob("*.py"):
            name = str(file.relative_to(ROOT))
            assert name in packaged or name.startswith(("results/runs/", "results/bench/")), name


def pinned(lock: str) -> set[str]:
    lines = (ROOT / lock).read_text().splitlines()
    return {line.partition("==")[0].lower().replace("_", "-") for line in lines if line and not line.startswith("#")}


def named(requirements: list[str]) -> set[str]:
    return {re.match(r"[A-Za-z0-9._-]+", requirement).group().lower() for requirement in requirements}


def test_locks_name_no_place_and_cover_the_dependencies():
    for lock in ("requirements.lock", "requirements-dev.lock"):
        text = (ROOT / lock).read_text()
        assert "://" not in text and "--" not in text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    of_a_run, of_tests = pinned("requirements.lock"), pinned("requirements-dev.lock")
    assert named(project["dependencies"]) <= of_a_run
    assert named(project["optional-dependencies"]["dev"]) <= of_a_run | of_tests
    assert not of_a_run & of_tests


def test_who_only_runs_gets_no_tools_of_developers():
    assert not pinned("requirements.lock") & {"pytest", "mypy", "ruff", "hypothesis", "playwright", "scapy", "build"}


# --- setup.sh --------------------------------------------------------------


def setup(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(ROOT / "setup.sh"), *arguments], capture_output=True, text=True, timeout=300)


def test_setup_says_its_verbs():
    done = setup("help")
    assert done.returncode == 0
    for verb in ("run", "test", "bench", "lint", "build"):
        assert f"\n  {verb} " in done.stdout
    assert setup().stdout == done.stdout


def test_setup_refuses_what_it_does_not_know():
    done = setup("tests")
    assert done.returncode == 2 and "unknown verb: tests" in done.stderr and done.stdout == ""


def test_setup_in_somebody_elses_checkout_says_so_in_a_line():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        shutil.copy(ROOT / "setup.sh", folder)
        done = subprocess.run(
            ["./setup.sh", "run"], cwd=folder, capture_output=True, text=True, user=65534, group=65534
        )
    assert done.returncode == 3
    said = "setup: error: nobody cannot write here, and the checkout belongs to root: use sudo, or a checkout of "
    assert done.stderr == f"{said}your own\n"


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="only where setup.sh has set up this tree")
def test_second_set_up_finds_everything_done():
    setup("build")
    done = setup("build")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
