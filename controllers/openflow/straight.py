"""A few flows straight into a bridge, over its management socket, without a controller or a library.

ovs-ofctl does likewise: its start takes the processor ten times as long as what it says, for each bridge of a fabric.
Numbers are those of OpenFlow 1.3.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

_HEADER = struct.Struct("!BBHI")  # version, kind, length, number of the message
_VERSION, _HELLO, _ERROR, _ECHO, _ECHOED, _FLOW_MOD, _BARRIER, _THROUGH = 4, 0, 1, 2, 3, 14, 20, 21
# cookie and its mask, table, command, two timeouts, priority, packet, port, group, flags; 2 bytes nothing
_FLOW = struct.Struct("!QQBBHHHIIIH2x")
_ADD, _PRIORITY, _NONE = 0, 0x8000, 0xFFFFFFFF
_MATCH = struct.Struct("!HH")  # OXM, length
_FIELD = struct.Struct("!HBB")  # class, field, length
_BASIC, _IN_PORT, _TO_MAC = 0x8000, 0 << 1, 3 << 1
_OUTPUT = struct.Struct("!HH4xHHIH6x")  # instruction, length; action, length, port, bytes for the controller
_APPLY_ACTIONS = 4
_BACK = 0xFFFFFFF8  # the port that a frame has come from
_LISTENS_S = 30.0


def to_mac(mac: str, port: int) -> bytes:
    """What goes to this address leaves by the port."""
    return _flow(_TO_MAC, bytes.fromhex(mac.replace(":", "")), port)


def back(port: int) -> bytes:
    """What comes in by the port leaves by it."""
    return _flow(_IN_PORT, port.to_bytes(4, "big"), _BACK)


def _flow(field: int, value: bytes, port: int) -> bytes:
    match = _MATCH.pack(1, 8 + len(value)) + _FIELD.pack(_BASIC, field, len(value)) + value
    match += bytes(-len(match) % 8)
    action = _OUTPUT.pack(_APPLY_ACTIONS, 24, 0, 16, port, 0)
    return _FLOW.pack(0, 0, 0, _ADD, 0, 0, _PRIORITY, _NONE, _NONE, _NONE, 0) + match + action


def _message(kind: int, number: int, body: bytes = b"") -> bytes:
    return _HEADER.pack(_VERSION, kind, _HEADER.size + len(body), number) + body


class Flows:
    """Flows that have been sent, by the calls of subprocess.Popen that wait for a command's end.

    It has ended when the bridge has taken them. Raises OSError if nobody listens.
    """

    def __init__(self, bridge: Path, flows: Iterable[bytes]) -> None:
        self.returncode: int | None = None
        self._bytes, self._errors = b"", ""
        told = b"".join(_message(_FLOW_MOD, number, flow) for number, flow in enumerate(flows, 1))
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(_LISTENS_S)
            self._socket.connect(str(bridge))
            self._socket.sendall(_message(_HELLO, 0) + told + _message(_BARRIER, 0))
        except BaseException:
            self._socket.close()
            raise

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Returns what went wrong, "" if nothing did. Raises TimeoutExpired if it has not ended by then."""
        end = time.monotonic() + timeout
        try:
            while self.returncode is None:
                self._socket.settimeout(max(0.001, end - time.monotonic()))
                self._hear()
        except TimeoutError:
            raise subprocess.TimeoutExpired("a bridge's flows", timeout) from None
        except OSError as error:
            self._end(f"the bridge cannot be told: {error}")
        return "", self._errors

    def kill(self) -> None:
        self._socket.close()

    def _hear(self) -> None:
        while len(self._bytes) < _HEADER.size or len(self._bytes) < _HEADER.unpack_from(self._bytes)[2]:
            if not (data := self._socket.recv(1 << 16)):
                raise ConnectionError("the connection is closed")
            self._bytes += data
        _, kind, length, number = _HEADER.unpack_from(self._bytes)
        body, self._bytes = self._bytes[_HEADER.size : length], self._bytes[length:]
        if kind == _ECHO:
            self._socket.sendall(_message(_ECHOED, number, body))
        elif kind == _ERROR:
            what, code = struct.unpack_from("!HH", body)
            self._end(f"flow {number} is refused (OpenFlow's error {what}, {code})")
        elif kind == _THROUGH:
            self._end()

    def _end(self, errors: str = "") -> None:
        self._errors, self.returncode = errors, int(bool(errors))
        self._socket.close()
