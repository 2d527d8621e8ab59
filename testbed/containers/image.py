"""Unpacks an image archive (`docker save`, or an OCI layout as `podman save --format oci-archive`) into a directory.

Archives are not trusted. They are unpacked by a child process that has locked itself into the new root with chroot, so
that no path, link or `..` in them leads out. The rest of the machine is read-only for that process. Device nodes and
set-id bits are left out. Bytes and files are counted against the free space, and its memory is bounded: a small archive
can list millions of files. Deep trees are no problem.
"""

from __future__ import annotations

import bz2  # noqa: F401  # tarfile imports these when it meets such an archive: too late after chroot
import ctypes
import errno
import gzip
import hashlib
import json
import lzma  # noqa: F401
import os
import resource
import shutil
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from testbed.base.errors import InputError, MachineError, UserError
from testbed.machine.directories import make_folders, remove
from testbed.machine.mounts import CHECKOUT

_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_MAX_METADATA = 16 << 20
_CLONE_NEWNS, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
_HINT = "an image archive comes from `docker save IMAGE -o FILE` or `podman save --format oci-archive IMAGE -o FILE`"
_NOT_AN_IMAGE = (tarfile.TarError, EOFError, ValueError, TypeError, LookupError, AttributeError, RecursionError)
_BLOCK, _INODE = 4096, 1024  # what a file takes beside its bytes
_MAX_ID = 65534
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Image:
    """An unpacked image: its root file system, and the environment that it wants."""

    rootfs: Path
    env: Mapping[str, str]


class ImageError(Exception):
    """What is wrong with an archive."""


class NoRoom(ImageError):
    """Nothing is wrong with it: this machine has no room for it."""


def unpack(
    archive: Path,
    rootfs: Path,
    first_id: int = 0,
    *,
    reserve_bytes: int = 256 << 20,
    reserve_files: int = 1 << 14,
    memory: int = 1 << 30,
) -> Image:
    """Unpacks into `rootfs`, a new directory, leaving at least so many bytes and files free there.

    Its users and groups are `first_id` and the 65535 ids after that. `memory` bounds the process that unpacks: a layer
    of half a million files takes less. Raises InputError; MachineError for lack of room.
    """
    rootfs.mkdir(parents=True)
    free = os.statvfs(rootfs)
    room = free.f_bavail * free.f_frsize - reserve_bytes
    files = free.f_favail - reserve_files if free.f_files else sys.maxsize  # 0: a file system that does not count
    numbers = [str(n) for n in (room, files, first_id, memory)]
    command = [sys.executable, "-P", "-m", "testbed.containers.image", str(archive.absolute()), str(rootfs), *numbers]
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    child = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    try:
        answer = json.loads(child.stdout)
    except ValueError:
        answer = {"error": child.stderr.strip().rpartition("\n")[2] or f"unpacking ended with {child.returncode}"}
    if "error" in answer:
        what = f"cannot unpack the image: {answer['error']}"
        if answer.get("no_room"):
            raise MachineError(what, where=str(archive), hint="make room under /run/railbed, or use a smaller image")
        raise InputError(what, where=str(archive), hint=_HINT)
    env_of_image = (entry.partition("=") for entry in answer["env"])
    return Image(rootfs, {key: value for key, _, value in env_of_image})


def _main(archive: str, rootfs: str, *numbers: str) -> dict[str, Any]:
    room, files, first_id, memory = map(int, numbers)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        with tarfile.open(archive) as outer:
            layers, config = _contents(outer)
            inside = os.stat(rootfs)
            _protect_all_but(rootfs)
            os.chroot(rootfs)
            os.chdir("/")
            os.umask(0)
            unpacker = _Unpacker(room, files, inside, first_id)
            for layer in layers:
                unpacker.layer(layer)
            return {"env": (config.get("config") or {}).get("Env") or []}
    except ImageError as error:
        return {"error": str(error), "no_room": isinstance(error, NoRoom)}
    except MemoryError:
        return {"error": f"to unpack it takes more than {memory >> 20} MiB of memory: it lists too many files"}
    except _NOT_AN_IMAGE as error:
        return {"error": f"not an image archive, or a damaged one ({type(error).__name__}: {error})"}
    except OSError as error:
        return {"error": str(error), "no_room": error.errno in (errno.ENOSPC, errno.EDQUOT)}


# -- the archive


def _contents(outer: tarfile.TarFile) -> tuple[Iterator[IO[bytes]], dict[str, Any]]:
    """Its layers from the lowest on, each to be read before the next, and its configuration."""
    members = {os.path.normpath(m.name): m for m in outer if m.isfile()}
    links = {os.path.normpath(m.name): os.path.normpath(os.path.join(os.path.dirname(m.name), m.linkname))
             for m in outer.getmembers() if m.issym()}  # fmt: skip  # old docker: layers that occur twice
    reader = _Reader(outer, members, links)
    if "index.json" in members:
        manifest = reader.manifest(reader.json("index.json"))
        config = reader.json(reader.blob(manifest["config"]["digest"]))
        return (reader.verified(layer["digest"]) for layer in manifest["layers"]), config
    if "manifest.json" in members:
        images = reader.json("manifest.json")
        if len(images) != 1:
            raise ImageError(f"it holds {len(images)} images; save one")
        return (reader.open(name) for name in images[0]["Layers"]), reader.json(images[0]["Config"])
    raise ImageError("it has neither index.json nor manifest.json")


@dataclass(frozen=True)
class _Reader:
    outer: tarfile.TarFile
    members: Mapping[str, tarfile.TarInfo]
    links: Mapping[str, str]

    def open(self, name: str) -> IO[bytes]:
        name = os.path.normpath(name)
        member = self.members.get(self.links.get(name, name))
        stream = self.outer.extractfile(member) if member else None
        if stream is None:
            raise ImageError(f"{name} is missing in it")
        return stream

    def json(self, name: str) -> Any:
        with self.open(name) as stream:
            return json.loads(stream.read(_MAX_METADATA))

    @staticmethod
    def blob(digest: str) -> str:
        algorithm, _, value = digest.partition(":")
        return f"blobs/{algorithm}/{value}"

    def verified(self, digest: str) -> IO[bytes]:
        """A blob whose digest is right."""
        algorithm, _, value = digest.partition(":")
        if algorithm != "sha256":
            raise ImageError(f"unknown digest {digest}")
        total = hashlib.sha256()
        with self.open(self.blob(digest)) as stream:
            while chunk := stream.read(1 << 20):
                total.update(chunk)
        if total.hexdigest() != value:
            raise ImageError(f"a layer is damaged: its digest is not {digest}")
        return self.open(self.blob(digest))

    def manifest(self, index: Mapping[str, Any], depth: int = 0) -> Any:
        """The manifest for this machine, through nested indexes."""
        entries = index["manifests"]
        here = _MACHINES.get(os.uname().machine, "")
        fitting = [e for e in entries if (e.get("platform") or {}).get("architecture", here) == here]
        if not fitting or depth > 4:
            raise ImageError(f"it has no image for {here or os.uname().machine}")
        document = self.json(self.blob(fitting[0]["digest"]))
        return self.manifest(document, depth + 1) if "manifests" in document else document


# -- one layer over the others, at /


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns"))


def _protect_all_but(rootfs: str) -> None:
    """Makes everything outside of `rootfs` read-only for this process, so that no bug can destroy anything there.

    The process gets its own mount namespace, so no other process is affected. Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), f"cannot protect the machine: {os.strerror(ctypes.get_errno())}")

    def set_attributes(path: str, flags: int, attributes: _MountAttributes) -> None:
        size = ctypes.sizeof(attributes)
        check(libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, path.encode(), flags, ctypes.byref(attributes), size))

    check(libc.unshare(_CLONE_NEWNS))
    check(libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None))
    check(libc.mount(rootfs.encode(), rootfs.encode(), None, _MS_BIND, None))
    set_attributes("/", _AT_RECURSIVE, _MountAttributes(set=_MOUNT_ATTR_RDONLY))
    set_attributes(rootfs, 0, _MountAttributes(clear=_MOUNT_ATTR_RDONLY))


class _Unpacker:
    def __init__(self, room: int, files: int, inside: os.stat_result, first_id: int = 0) -> None:
        """`inside` is the directory that / must be: a layer removes files."""
        if not os.path.samestat(os.stat("/"), inside):
            raise ImageError("the unpacking process is not locked into the new root; nothing was unpacked")
        self._room = room
        self._files = files
        self._first_id = first_id
        os.chown("/", first_id, first_id)

    def layer(self, stream: IO[bytes]) -> None:
        """Applies a layer: its files over those of the layers before, its whiteouts instead of them."""
        mine: set[str] = set()
        times: list[tuple[str, float]] = []
        with stream, tarfile.open(fileobj=_plain(stream), mode="r:") as layer:
            for member in layer:
                cast(Any, layer).members.clear()  # else it keeps all that it has met
                path = os.path.normpath("/" + member.name)
                folder, name = os.path.split(path)
                if name == _OPAQUE:
                    self._empty(folder, mine)
                elif name.startswith(_WHITEOUT):
                    if (hidden := name[len(_WHITEOUT) :]) not in ("", ".", ".."):
                        remove(os.path.join(folder, hidden))
                elif path != "/":
                    for made in make_folders(folder):
                        self._charge(0)
                        os.chown(made, self._first_id, self._first_id)
                    self._make(layer, member, path)
                    mine.add(os.path.join(os.path.realpath(folder), name))
                    if member.isdir():
                        times.append((path, member.mtime))
        for path, mtime in reversed(times):
            if os.path.isdir(path):
                os.utime(path, (mtime, mtime))

    def _empty(self, folder: str, mine: set[str]) -> None:
        folder = os.path.realpath(folder)
        if os.path.isdir(folder):
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                if not any(p == path or p.startswith(path + "/") for p in mine):
                    remove(path)

    def _make(self, layer: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
        self._charge(member.size if member.isfile() else 0)
        if not (member.isdir() and os.path.isdir(path) and not os.path.islink(path)):
            remove(path)
        if member.isdir():
            if not os.path.isdir(path):
                os.mkdir(path)
        elif member.issym():
            os.symlink(member.linkname, path)
        elif member.islnk():
            os.link(os.path.normpath("/" + member.linkname), path, follow_symlinks=False)
            return
        elif member.isfile():
            _copy(layer.extractfile(member), path)
        else:
            return  # devices and pipes
        owner, group = (self._first_id + min(max(n, 0), _MAX_ID) for n in (member.uid, member.gid))
        os.chown(path, owner, group, follow_symlinks=False)
        if not member.issym():
            os.chmod(path, stat.S_IMODE(member.mode) & ~(stat.S_ISUID | stat.S_ISGID))
        if member.isfile():
            os.utime(path, (member.mtime, member.mtime))

    def _charge(self, size: int) -> None:
        self._room -= -(-size // _BLOCK) * _BLOCK + _INODE
        self._files -= 1
        if self._room < 0:
            raise NoRoom("not enough room for it under /run/railbed; free some, or use a smaller image")
        if self._files < 0:
            raise NoRoom("it has more files than there is room for under /run/railbed; use a smaller image")


def _copy(source: IO[bytes] | None, path: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as target:
        if source:
            shutil.copyfileobj(source, target, 1 << 20)


def _plain(stream: IO[bytes]) -> IO[bytes]:
    start = stream.read(4)
    stream.seek(0)
    if start[:2] == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=stream)  # type: ignore[return-value]
    if start == b"\x28\xb5\x2f\xfd":
        raise ImageError("its layers are packed with zstd; save it with gzip or uncompressed")
    return stream


def root_of(archive: str | None, directory: Path, first_id: int) -> Image | None:
    """The image of an experiment unpacked below a fabric's directory; None: workers use this machine's root."""
    if archive is None:
        return None
    path = Path(archive)
    if not path.is_file():
        raise UserError("there is no such image archive", where=str(path), hint=_HINT, exit_code=2)
    return unpack(path, directory / "image", first_id)


if __name__ == "__main__":
    print(json.dumps(_main(*sys.argv[1:])))
