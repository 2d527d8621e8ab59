"""An OCI image of a root file system: `python install/image.py ROOT.tar IMAGE.oci.tar --version V --arch A`.

The archive is both an OCI layout, as `podman load` and others take it, and what `docker save` writes, so that every
Docker loads it. It has one layer, and its PATH begins with Railbed's own Python, so that it serves as `workers.image`.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

HOME = "/usr/lib/railbed"
_PATH = f"{HOME}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OCI = "application/vnd.oci.image"
_PIECE = 1 << 20


class Hashed(io.RawIOBase):
    """Writes through to a file, and hashes what it writes."""

    def __init__(self, path: Path) -> None:
        self.file, self.sha = path.open("wb"), hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.sha.update(data)
        return self.file.write(data)

    def close(self) -> None:
        self.file.close()
        super().close()


def layer_of(root: Path, packed: Path) -> tuple[str, str]:
    """Packs the root; the hashes of the layer as it is packed, and as it is unpacked."""
    plain, out = hashlib.sha256(), Hashed(packed)
    with root.open("rb") as source, out, gzip.GzipFile("", "wb", 6, out, mtime=0) as zipped:
        while piece := source.read(_PIECE):
            plain.update(piece)
            zipped.write(piece)
    return out.sha.hexdigest(), plain.hexdigest()


def configuration(plain: str, arch: str, version: str) -> dict[str, Any]:
    return {
        "architecture": arch,
        "os": "linux",
        "config": {
            "Env": [f"PATH={_PATH}"],
            "Cmd": ["bash"],
            "WorkingDir": "/root",
            "Labels": {"org.opencontainers.image.title": "Railbed", "org.opencontainers.image.version": version},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{plain}"]},
        "history": [{"created_by": "install/image.sh"}],
    }


def write(root: Path, image: Path, version: str, arch: str) -> None:
    packed = image.with_suffix(".layer")
    layer, plain = layer_of(root, packed)
    tag = "".join(c if c.isalnum() or c in "._-" else "-" for c in version)  # a tag knows no ~
    with tarfile.open(image, "w") as archive:

        def add(name: str, content: bytes) -> None:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))

        def blob(kind: str, content: dict[str, Any]) -> dict[str, Any]:
            data = json.dumps(content, separators=(",", ":")).encode()
            digest = hashlib.sha256(data).hexdigest()
            add(f"blobs/sha256/{digest}", data)
            return {"mediaType": f"{_OCI}.{kind}+json", "digest": f"sha256:{digest}", "size": len(data)}

        entry = archive.gettarinfo(str(packed), f"blobs/sha256/{layer}")
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        with packed.open("rb") as content:
            archive.addfile(entry, content)
        config = blob("config.v1", configuration(plain, arch, version))
        layers = [{"mediaType": f"{_OCI}.layer.v1.tar+gzip", "digest": f"sha256:{layer}", "size": entry.size}]
        kind = {"schemaVersion": 2, "mediaType": f"{_OCI}.manifest.v1+json"}
        manifest = blob("manifest.v1", {**kind, "config": config, "layers": layers})
        named = {**manifest, "platform": {"os": "linux", "architecture": arch}}
        named["annotations"] = {
            "org.opencontainers.image.ref.name": tag,
            "io.containerd.image.name": f"docker.io/library/railbed:{tag}",
        }
        index = {"schemaVersion": 2, "mediaType": f"{_OCI}.index.v1+json", "manifests": [named]}
        add("index.json", json.dumps(index).encode())
        add("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        path = f"blobs/sha256/{config['digest'].removeprefix('sha256:')}"
        docker = {"Config": path, "RepoTags": [f"railbed:{tag}"], "Layers": [f"blobs/sha256/{layer}"]}
        add("manifest.json", json.dumps([docker]).encode())
    os.unlink(packed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("image", type=Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--arch", required=True)
    given = parser.parse_args()
    write(given.root, given.image, given.version, given.arch)


if __name__ == "__main__":
    main()
