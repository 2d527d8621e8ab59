"""Answers of Open vSwitch's control socket, written as JSON by Python, and read by fabricd in pieces of any size."""

from __future__ import annotations

import ctypes
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

FABRICD = Path(__file__).parents[2] / "hardware" / "fabricd"


class Reply(ctypes.Structure):
    _fields_ = (("id", ctypes.c_uint64), ("result", ctypes.c_char_p))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    built = tmp_path_factory.mktemp("replies") / "reply.so"
    source = FABRICD / "fast_path" / "reply.c"
    flags = ["-std=c17", "-O1", "-shared", "-fPIC", f"-I{FABRICD}"]
    subprocess.run(["gcc", *flags, "-o", str(built), str(source)], check=True)
    found = ctypes.CDLL(str(built))
    found.replies_room.restype = ctypes.c_void_p
    found.replies_next.restype = ctypes.c_bool
    return found


class Replies:
    """A connection, without one."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.state = ctypes.create_string_buffer(256)  # more than the struct has

    def came(self, data: bytes) -> Iterator[tuple[int, bytes | None]]:
        room = ctypes.c_size_t()
        while data:
            to = self.library.replies_room(self.state, ctypes.byref(room))
            if not to:
                raise OverflowError
            piece, data = data[: room.value], data[room.value :]
            ctypes.memmove(to, piece, len(piece))
            self.library.replies_came(self.state, ctypes.c_size_t(len(piece)))
            reply = Reply()
            while self.library.replies_next(self.state, ctypes.byref(reply)):
                yield reply.id, reply.result

    def close(self) -> None:
        self.library.replies_free(self.state)


ASCII = st.text(st.characters(min_codepoint=1, max_codepoint=127) | st.sampled_from('"\\{}\n'), max_size=60)
ANSWERS = st.lists(st.tuples(st.integers(0, 2**63 - 1), ASCII | st.none(), ASCII | st.none()), min_size=1, max_size=5)


@given(ANSWERS, st.integers(1, 40), st.booleans())
@example([(7, 'Datapath actions: 3\n"\\"}{', None), (8, None, "unknown bridge")], 1, True)
def test_what_python_writes_is_read_whatever_the_pieces(
    library: ctypes.CDLL, answers: list[tuple[int, str | None, str | None]], piece: int, compact: bool
) -> None:
    separators = (",", ":") if compact else (", ", ": ")
    text = "".join(
        json.dumps({"error": error, "id": number, "result": result}, separators=separators)
        for number, result, error in answers
    ).encode()
    replies = Replies(library)
    found = [reply for i in range(0, len(text), piece) for reply in replies.came(text[i : i + piece])]
    replies.close()
    assert found == [(number, result if result is None else result.encode()) for number, result, _ in answers]


def test_keys_stand_in_any_order_and_what_is_not_asked_for_is_passed_over(library: ctypes.CDLL) -> None:
    replies = Replies(library)
    text = b' {"result" : "\\u0041\\u20ac\\u12", "more": [{"id": 5, "result": "x]"}, [1]], "id" : 3}\n{"id": 4}'
    assert list(replies.came(text)) == [(3, b"A?\x12"), (4, None)]
    replies.close()


def test_an_answer_without_an_end_is_not_gathered_for_ever(library: ctypes.CDLL) -> None:
    replies = Replies(library)
    with pytest.raises(OverflowError):
        list(replies.came(b'{"result":"' + bytes([120]) * (2 << 20)))
    replies.close()
