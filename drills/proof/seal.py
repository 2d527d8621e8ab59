"""The truth under seal: nobody can read it before the end, or change it afterwards.

The commitment, SHA-256 of salt, truth and drill, is shown at the start; salt and truth follow at the end. On disk the
truth is encrypted (AES-256-GCM) meanwhile; the key is in memory alone.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field

_NONCE = 12
_PADDED = 4096  # every box is as long: a short one would be that of a healthy world


def commitment(salt: str, truth: str, drill: str) -> str:
    return hashlib.sha256("\0".join((salt, truth, drill)).encode()).hexdigest()


@dataclass(frozen=True)
class Seal:
    """A truth (as text) of a drill (the text of its file)."""

    truth: str
    drill: str
    salt: str = field(default_factory=lambda: secrets.token_hex(16))
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    @property
    def commitment(self) -> str:
        return commitment(self.salt, self.truth, self.drill)

    def box(self) -> bytes:
        """The truth, encrypted."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = secrets.token_bytes(_NONCE)
        return nonce + AESGCM(self.key).encrypt(nonce, self.truth.encode().ljust(_PADDED), self.commitment.encode())


def opened(box: bytes, key: bytes, commitment: str) -> str:
    """The truth in a box. Raises ValueError if key, box and commitment do not belong together."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(box[:_NONCE], box[_NONCE:], commitment.encode()).decode().rstrip(" ")
    except InvalidTag:
        raise ValueError("this box is of another drill, or was changed") from None
