"""Root file systems from image archives: docker's and OCI's layout, whiteouts, and archives that mean harm."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.base.errors import InputError, MachineError
from testbed.containers.image import ImageError, _Unpacker, unpack
from testbed.machine.directories import remove_tree
from tests.parts.machine import ROOT, TESTBED, cli, fabrics_begun_by, traces

Entry = tuple[str, str | None]  # name, and contents; None: a directory


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644, size: int = 0
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.size = kind, link, mode, size
    return info


def layer(*entries: Entry | tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                tar.addfile(entry, io.BytesIO(b"x" * entry.size))
            elif entry[1] is None:
                tar.addfile(member(entry[0], tarfile.DIRTYPE, mode=0o755))
            else:
                data = entry[1].encode()
                tar.addfile(member(entry[0], size=len(data)), io.BytesIO(data))
    return out.getvalue()


def archive(path: Path, files: Iterable[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def docker(path: Path, layers: Sequence[bytes], env: Sequence[str] = ()) -> Path:
    names = [f"{n}/layer.tar" for n in range(len(layers))]
    manifest = [{"Config": "c.json", "RepoTags": None, "Layers": names}]
    config = {"config": {"Env": list(env)}}
    files = [("c.json", json.dumps(config).encode()), ("manifest.json", json.dumps(manifest).encode())]
    return archive(path, [*files, *zip(names, layers, strict=True)])


def oci(path: Path, layers: Sequence[bytes], env: Sequence[str] = (), nested: bool = False) -> Path:
    blobs: dict[str, bytes] = {}

    def blob(data: bytes, **more: Any) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"digest": f"sha256:{digest}", "size": len(data), **more}

    packed = [blob(gzip.compress(data), mediaType="application/vnd.oci.image.layer.v1.tar+gzip") for data in layers]
    config = blob(json.dumps({"config": {"Env": list(env)}}).encode())
    entry = blob(json.dumps({"config": config, "layers": packed}).encode())
    if nested:
        other = {**entry, "platform": {"architecture": "s390x"}}
        mine = {**entry, "platform": {"architecture": {"x86_64": "amd64"}.get(os.uname().machine, "arm64")}}
        entry = blob(json.dumps({"manifests": [other, mine]}).encode())
    index = json.dumps({"manifests": [entry]}).encode()
    return archive(path, [("oci-layout", b"{}"), ("index.json", index), *blobs.items()])


def tree(root: Path) -> dict[str, str | None]:
    """Path -> contents of every file (links: where they lead), None for directories."""
    found: dict[str, str | None] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        found[name] = f"-> {os.readlink(path)}" if path.is_symlink() else None if path.is_dir() else path.read_text()
    return found


BASE = layer(("bin", None), ("bin/a", "a1"), ("bin/b", "b1"), ("etc", None), ("etc/old", "old"), ("keep", "k"))
OVER = layer(("bin/.wh.a", ""), ("bin/b", "b2"), ("etc", None), ("etc/new", "new"), ("etc/.wh..wh..opq", ""))
MERGED = {"bin": None, "bin/b": "b2", "etc": None, "etc/new": "new", "keep": "k"}


@pytest.mark.parametrize("make", [docker, oci])
def test_layers_lie_over_each_other(tmp_path: Path, make: Any) -> None:
    image = unpack(make(tmp_path / "i.tar", [BASE, OVER], ["PATH=/bin", "X=a=b"]), tmp_path / "root")
    assert tree(image.rootfs) == MERGED
    assert image.env == {"PATH": "/bin", "X": "a=b"}


def test_an_index_of_several_machines(tmp_path: Path) -> None:
    assert tree(unpack(oci(tmp_path / "i.tar", [BASE, OVER], nested=True), tmp_path / "root").rootfs) == MERGED


def test_a_compressed_archive(tmp_path: Path) -> None:
    plain = docker(tmp_path / "i.tar", [BASE, OVER])
    (tmp_path / "i.tgz").write_bytes(gzip.compress(plain.read_bytes()))
    assert tree(unpack(tmp_path / "i.tgz", tmp_path / "root").rootfs) == MERGED


def test_links_modes_and_owners(tmp_path: Path) -> None:
    script = member("usr/bin/tool", mode=0o4755, size=3)
    script.uid, script.mtime = 42, 1_000_000
    hard, soft = member("bin/hard", tarfile.LNKTYPE, "usr/bin/tool"), member("bin", tarfile.SYMTYPE, "usr/bin")
    disk = member("dev/disk", tarfile.BLKTYPE)
    entries = (("usr", None), ("usr/bin", None), script, soft, hard, disk, ("a/b/c", "deep"))
    root = unpack(docker(tmp_path / "i.tar", [layer(*entries)]), tmp_path / "root").rootfs
    status = (root / "usr/bin/tool").stat()
    assert (status.st_mode & 0o7777, status.st_uid, status.st_mtime) == (0o755, 42, 1_000_000)
    assert (root / "usr/bin/hard").stat().st_ino == status.st_ino
    assert os.readlink(root / "bin") == "usr/bin"
    assert not (root / "dev/disk").exists()
    assert (root / "a/b/c").read_text() == "deep"


def test_a_layer_turns_a_link_into_a_directory_and_back(tmp_path: Path) -> None:
    layers = [layer(("d/x", "x"), member("l", tarfile.SYMTYPE, "d")), layer(("l", None), ("l/y", "y")),
              layer(member("d", tarfile.SYMTYPE, "l"))]  # fmt: skip
    root = unpack(docker(tmp_path / "i.tar", layers), tmp_path / "root").rootfs
    assert tree(root) == {"d": "-> l", "l": None, "l/y": "y"}


# -- archives that mean harm

_names = st.sampled_from(["a", "b", "..", ".", "", "/", ".wh.a", ".wh..wh..opq", ".wh...", "target", "root"])
_paths = st.lists(_names, min_size=1, max_size=5).map("/".join)
_kinds = st.sampled_from(
    [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)


@st.composite
def _members(draw: st.DrawFn) -> tarfile.TarInfo:
    kind = draw(_kinds)
    link = draw(_paths | st.just("/etc/passwd") | st.just("../../target"))
    return member(draw(_paths), kind, link, mode=draw(st.integers(0, 0o7777)), size=4 if kind == tarfile.REGTYPE else 0)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.lists(_members(), max_size=8), second=st.lists(_members(), max_size=8))
def test_nothing_outside_is_made_changed_or_removed(
    tmp_path: Path, first: list[tarfile.TarInfo], second: list[tarfile.TarInfo]
) -> None:
    shutil.rmtree(tmp_path / "case", ignore_errors=True)
    (tmp_path / "case" / "target").mkdir(parents=True)
    (tmp_path / "case" / "target" / "a").write_text("precious")
    path = docker(tmp_path / "case" / "i.tar", [layer(*first), layer(*second)])
    before, passwd = path.read_bytes(), Path("/etc/passwd").stat()
    try:
        unpack(path, tmp_path / "case" / "root")
    except InputError as error:
        assert "Traceback" not in error.what
    assert sorted(os.listdir(tmp_path / "case")) == ["i.tar", "root", "target"]
    assert tree(tmp_path / "case" / "target") == {"a": "precious"}
    assert path.read_bytes() == before
    assert (Path("/etc/passwd").stat().st_ino, Path("/etc/passwd").stat().st_nlink) == (passwd.st_ino, passwd.st_nlink)


@pytest.mark.parametrize(
    ("entries", "wanted"),
    [
        ([("../../target/evil", "x")], "target/evil"),
        ([member("up", tarfile.SYMTYPE, "../../../.."), ("up/evil", "x")], "evil"),
        ([member("abs", tarfile.SYMTYPE, "/"), ("abs/evil", "x")], "evil"),
    ],
)
def test_paths_that_lead_out_end_inside(tmp_path: Path, entries: list[Any], wanted: str) -> None:
    root = unpack(docker(tmp_path / "i.tar", [layer(*entries)]), tmp_path / "a" / "root").rootfs
    assert (root / wanted).read_text() == "x"
    assert not (tmp_path / "evil").exists()


def garbage(tmp_path: Path) -> dict[str, Path]:
    damaged = oci(tmp_path / "damaged.tar", [BASE])
    data = bytearray(damaged.read_bytes())
    start = data.index(b"\x1f\x8b")
    data[start + 20] ^= 0xFF
    damaged.write_bytes(data)
    (tmp_path / "text.tar").write_text("not a tar")
    cut = docker(tmp_path / "cut.tar", [BASE])
    cut.write_bytes(cut.read_bytes()[:3000])
    bad = [{"Config": "c.json", "Layers": ["absent/layer.tar"]}]
    return {
        "damaged": damaged,
        "Read": tmp_path / "text.tar",
        "damaged one": cut,
        "neither": archive(tmp_path / "other.tar", [("hello", b"")]),
        "2 images": archive(tmp_path / "two.tar", [("manifest.json", b"[{}, {}]")]),
        "missing": archive(tmp_path / "absent.tar", [("c.json", b"{}"), ("manifest.json", json.dumps(bad).encode())]),
        "not an image": archive(tmp_path / "types.tar", [("manifest.json", b'[{"Config": 3, "Layers": 4}]')]),
    }


def test_archives_that_are_none(tmp_path: Path) -> None:
    for number, (word, path) in enumerate(garbage(tmp_path).items()):
        with pytest.raises(InputError) as error:
            unpack(path, tmp_path / f"root{number}")
        assert word.lower() in error.value.what.lower() or word == "Read", error.value.what
        assert str(path) == error.value.where
        assert "Traceback" not in error.value.what


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB that nobody else uses."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "rb-small", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_an_image_that_does_not_fit(tmp_path: Path, small: Path) -> None:
    path = docker(tmp_path / "i.tar", [layer(("big", "x" * 100_000))])
    with pytest.raises(MachineError, match="not enough room"):
        unpack(path, small / "root", reserve_bytes=shutil.disk_usage(small).free - 50_000)


def test_a_full_disk_is_the_machines_problem_not_the_images(tmp_path: Path, small: Path) -> None:
    path = docker(tmp_path / "i.tar", [layer(("big", "x" * 3_000_000))])
    with pytest.raises(MachineError, match="No space left on device"):
        unpack(path, small / "root", reserve_bytes=-100_000_000)  # others take it meanwhile


def test_an_image_with_too_many_files(tmp_path: Path) -> None:
    """Empty files take no bytes, and a file system runs out of inodes all the same."""
    path = docker(tmp_path / "i.tar", [layer(*((f"d/{n}", "") for n in range(2000)))])
    with pytest.raises(MachineError, match="more files than there is room for"):
        unpack(path, tmp_path / "root", reserve_files=os.statvfs(tmp_path).f_favail - 1000)


@pytest.mark.parametrize("where", ["archive", "layer"])
def test_a_small_archive_of_large_headers_takes_no_more_memory_than_it_may(tmp_path: Path, where: str) -> None:
    """They pack to a hundredth. Those of a layer, from which nothing is made here, are forgotten one by one."""
    info = member(".wh.gone")
    info.pax_headers = {"comment": "x" * 200_000}
    packed = gzip.compress(info.tobuf(tarfile.PAX_FORMAT) * 1000 + bytes(1024), 1)
    path, memory = tmp_path / "many.tar", 128 << 20
    assert len(packed) < 2 << 20
    if where == "layer":
        unpack(docker(path, [packed]), tmp_path / "root", memory=memory)
        return
    path.write_bytes(packed)
    with pytest.raises(InputError, match="takes more than 128 MiB of memory"):
        unpack(path, tmp_path / "root", memory=memory)


def test_its_users_are_those_of_the_fabric(tmp_path: Path) -> None:
    mine, stranger = member("mine", size=1), member("stranger", size=1)
    mine.uid, mine.gid, stranger.uid = 7, 8, 1 << 20
    root = unpack(docker(tmp_path / "i.tar", [layer(mine, stranger, ("d/e", "x"))]), tmp_path / "root", 1 << 24).rootfs
    owners = {p.name: (p.stat().st_uid, p.stat().st_gid) for p in (root, *root.rglob("*"))}
    first = 1 << 24
    assert owners["mine"] == (first + 7, first + 8)
    assert owners["stranger"] == (first + 65534, first)
    assert {owners[name] for name in ("root", "d", "e")} == {(first, first)}


def deep(levels: int) -> bytes:
    """A layer of folders inside each other, and beyond what one path can name by way of a link into them."""
    path = "/".join("d" * levels)
    link = member("l", tarfile.SYMTYPE, path)
    return layer((path, None), (path + "/x", "x"), link, ("l/" + path, None), member("gone/" + path, size=1))


def test_folders_however_deep(tmp_path: Path) -> None:
    layers = [deep(1100), layer((".wh.gone", ""))]
    root = unpack(docker(tmp_path / "i.tar", layers), tmp_path / "root").rootfs
    assert (root / "/".join("d" * 1100) / "x").read_text() == "x"
    assert not (root / "gone").exists()
    remove_tree(root)
    assert not root.exists()


def test_a_tree_is_removed_as_far_as_can_be(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (tmp_path / "kept").mkdir()
    (top / "a" / "link").symlink_to(tmp_path / "kept")
    (top / "a" / "b" / "file").write_text("x")
    (top / "busy").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(top / "busy")], check=True)
    try:
        with pytest.raises(OSError, match="busy") as error:
            remove_tree(top)
        assert error.value.errno == errno.EBUSY
        assert os.listdir(top) == ["busy"]
    finally:
        subprocess.run(["umount", str(top / "busy")], check=True)
    remove_tree(top)
    assert os.listdir(tmp_path) == ["kept"]


# -- a fabric's workers in it


def machine_image(path: Path) -> Path:
    """An image with little more than a shell, made of this machine's own programs and their libraries."""
    wanted = ["/bin/sh", "/bin/cat", "/bin/hostname"]
    libraries = set()
    for program in wanted:
        out = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        libraries |= set(re.findall(r"(/\S+) \(0x", out))
    out_file = io.BytesIO()
    with tarfile.open(fileobj=out_file, mode="w") as tar:
        for name in [*wanted, *sorted(libraries)]:
            tar.add(os.path.realpath(name), name.lstrip("/"))
        info = tarfile.TarInfo("etc/image")
        info.size = 4
        tar.addfile(info, io.BytesIO(b"mine"))
    return docker(path, [out_file.getvalue()], ["FROM_IMAGE=yes"])


def test_workers_run_in_an_image(tmp_path: Path) -> None:
    machine_image(tmp_path / "i.tar")
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    (data / "bound").write_text("bound\n")
    experiment = f"name: i\nfabric: {{topology: {{star: {{hosts: 2}}}}}}\nworkers: {{image: i.tar, bind: [{data}]}}\n"
    (tmp_path / "e.yaml").write_text(experiment)
    fabric_id = json.loads(cli("up", str(tmp_path / "e.yaml"), "--virtual", "--json"))["id"]
    try:
        script = (
            "cat /etc/image; echo; echo $FROM_IMAGE $RAILBED_RANK; hostname; (echo x > /new) 2>&- || echo read-only;"
            f" cat {data}/bound; (echo x > {data}/new) 2>&- || echo read-only"
        )
        out = cli("exec", "--fabric", fabric_id, "1", "--", "sh", "-c", script)
        assert out.split() == ["mine", "yes", "1", "h1", "read-only", "bound", "read-only"]
    finally:
        cli("down", fabric_id)
    assert traces(fabric_id) == []


def test_a_bad_image_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "i.tar").write_text("nonsense")
    (tmp_path / "e.yaml").write_text("name: i\nfabric: {topology: {star: {hosts: 2}}}\nworkers: {image: i.tar}\n")
    command = [*TESTBED, "up", str(tmp_path / "e.yaml"), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as up:
        out, _ = up.communicate()
    assert up.returncode == 2
    assert "cannot unpack the image" in json.loads(out)["error"]["what"]
    assert fabrics_begun_by(up.pid) == []


def test_the_machine_is_read_only_for_the_unpacking_process(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    outside, inside = tmp_path / "outside", tmp_path / "root" / "inside"
    program = (
        "import pathlib; from testbed.containers.image import _protect_all_but\n"
        f"_protect_all_but({str(tmp_path / 'root')!r})\n"
        f"pathlib.Path({str(inside)!r}).write_text('x')\n"
        f"try: pathlib.Path({str(outside)!r}).write_text('x')\n"
        "except OSError as error: print(error.errno)"
    )
    done = subprocess.run([TESTBED[0], "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(errno.EROFS)
    assert not outside.exists()
    assert inside.read_text() == "x"


def test_nothing_is_unpacked_outside_of_a_new_root(tmp_path: Path) -> None:
    """Layers remove what they lie over: without the lock into the new root that would be the machine's own files."""
    with pytest.raises(ImageError, match="not locked into the new root"):
        _Unpacker(1 << 20, 100, os.stat(tmp_path))
