"""Signed games: the server of a game vouches for its log.

It signs the hash over all lines of the log: the drill, the seed and who chose it, the player, the start, the commitment
to the truth with its salt, every line that was typed with the digest of the world after it, the score. Ed25519
(RFC 8032), by the library `cryptography`. A signature proves that the key's holder has run the game; that is worth as
much as his machine is closed to the player (docs/drills.md).
"""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.errors import InputError
from testbed.base.model_file import FileKind, text_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_CONTEXT = b"railbed: log of a drill\0"  # so that a signature of anything else is none of a log
_KEY = FileKind("a key", "testbed drill key FILE makes one", "docs/drills.md")
_BYTES = 32
MOST = 4096


def new(path: Path) -> str:
    """Makes a key pair: the private one in `path`, which its owner alone may read, the public one in `path`.pub.
    Returns the public one. Raises InputError."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    public = public_of(key)
    _create(path, secret, 0o600)
    try:
        _create(path.with_name(f"{path.name}.pub"), f"{public}\n".encode(), 0o644)
    except InputError:
        path.unlink()
        raise
    return public


def _create(path: Path, content: bytes, mode: int) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", str(path), "a file that is not there yet") from None
    with os.fdopen(fd, "wb") as file:
        file.write(content)


def private(path: Path) -> Ed25519PrivateKey:
    """Raises InputError, also for a file that others may read."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    text, name = text_of(path, _KEY, MOST), str(path)
    status = os.stat(path)
    if stat.S_IMODE(status.st_mode) & 0o077 or status.st_uid not in (0, os.geteuid()):
        raise InputError("others may read this key", name, f"chmod 600 {name}, or better a new one")
    try:
        key = load_pem_private_key(text.encode(), None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError("this is no private key of a drill's server", name, _KEY.ready)
    return key


def public_of(key: Ed25519PrivateKey) -> str:
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def public(text: str) -> str:
    """A public key, as it is written or of the file that has it. Raises InputError."""
    written = text if _is_public(text) else text_of(text, _KEY, MOST).strip()
    if not _is_public(written):
        raise InputError("this is no public key of a drill's server", text[:80], "the .pub beside the private one")
    return written


def _is_public(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == _BYTES
    except ValueError:
        return False


def sign(key: Ed25519PrivateKey, sha256: str) -> dict[str, str]:
    """What a signed log ends with, besides its hash."""
    return {
        "key": public_of(key),
        "signature": base64.b64encode(key.sign(_CONTEXT + bytes.fromhex(sha256))).decode(),
    }


def is_signed(public: object, signature: object, sha256: str) -> bool:
    """Whether it is the signature of that hash by that key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if not isinstance(public, str) or not isinstance(signature, str):
        return False
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public, validate=True))
        key.verify(base64.b64decode(signature, validate=True), _CONTEXT + bytes.fromhex(sha256))
    except (InvalidSignature, ValueError):
        return False
    return True
