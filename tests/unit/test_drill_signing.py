"""Games that a server vouches for: its key, what it signs, what is refused."""

from __future__ import annotations

import base64
import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from drills import log as logs
from drills.game import Game
from drills.play.ranking import ranked
from drills.proof import signing
from drills.sheet import file
from drills.sheet.case import Case
from drills.sheet.daily import DRAWN
from testbed.base.errors import InputError
from testbed.commands import drill
from tests.parts.drills import clos
from tests.parts.fake_world import FakeWorld


@pytest.fixture
def key(tmp_path: Path) -> Path:
    signing.new(path := tmp_path / "referee.key")
    return path


def drawn() -> Game:
    case = Case.of(file.loads(clos(0.2), "d.yaml"), "7Q4QQQQQQQQQ", False)
    return Game.start(case, player="ada", seed_by=DRAWN, up=FakeWorld)  # type: ignore[arg-type]


@pytest.fixture
def signed(key: Path, tmp_path: Path) -> Path:
    game = drawn()
    game.command("advance 10us")
    game.command(f"submit {game.stage.drawn.truth[0]}")
    (folder := tmp_path / "games").mkdir()
    game.log().write(folder / "game.log", signing.private(key))
    game.close()
    return folder / "game.log"


def public(key: Path) -> str:
    return signing.public(f"{key}.pub")


def test_a_private_key_is_its_owners_alone(key: Path, tmp_path: Path) -> None:
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert public(key) == signing.public(public(key)) == signing.public_of(signing.private(key))
    with pytest.raises(InputError, match="cannot be made"):
        signing.new(key)  # not over another
    key.chmod(0o640)
    with pytest.raises(InputError, match="others may read"):
        signing.private(key)
    (other := tmp_path / "other").write_text("no key\n")
    other.chmod(0o600)
    with pytest.raises(InputError, match="no private key"):
        signing.private(other)
    with pytest.raises(InputError, match="no public key"):
        signing.public(str(other))
    os.mkfifo(fifo := tmp_path / "fifo")
    with pytest.raises(InputError, match="no ordinary file"):
        signing.private(fifo)


def test_another_library_finds_the_signature_right(signed: Path, key: Path) -> None:
    nacl = pytest.importorskip("nacl.signing")
    last = json.loads(signed.read_text().splitlines()[-1])
    of = b"railbed: log of a drill\0" + bytes.fromhex(last["sha256"])
    nacl.VerifyKey(base64.b64decode(last["key"])).verify(of, base64.b64decode(last["signature"]))
    assert (last["key"], logs.read(signed).signed_by) == (public(key), public(key))
    assert key.read_text().splitlines()[1] not in signed.read_text()


def test_what_was_changed_moved_or_signed_by_another_does_not_count(signed: Path, key: Path, tmp_path: Path) -> None:
    log, folder = logs.read(signed), signed.parent
    last = json.loads(signed.read_text().splitlines()[-1])

    def ending_with(one: logs.Log, name: str, **end: str) -> None:
        text = "\n".join([*one.lines(), json.dumps({"sha256": one.sha256, **end})]) + "\n"
        (folder / name).write_text(text)

    better = replace(log, head={**log.head, "player": "eve"})
    ending_with(better, "moved.log", key=last["key"], signature=last["signature"])
    ending_with(better, "stripped.log")
    ending_with(better, "half.log", key=last["key"])
    signing.new(tmp_path / "eve.key")
    better.write(folder / "eve.log", signing.private(tmp_path / "eve.key"))
    log.write(folder / "later.log", signing.private(key))
    for name in ("moved.log", "half.log"):
        with pytest.raises(InputError, match="its signature is not of its lines"):
            logs.read(folder / name)
    board, refused = ranked(folder, play=False, key=public(key))
    assert [(row["player"], row["seeds"], row["games"]) for row in board] == [("ada", "drawn", 1)]
    wrong = "its signature is not of its lines and that key"
    assert refused == {
        "moved.log": wrong, "half.log": wrong, "stripped.log": "nobody has signed it",
        "eve.log": "another key has signed it", "later.log": "it is the same game as game.log",
    }  # fmt: skip


def test_verify_says_what_a_key_vouches_for(signed: Path, key: Path, tmp_path: Path) -> None:
    def said(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(drill.command, ["verify", str(signed), *words])
        return done.exit_code, str(done.exception or done.output)

    code, text = said("--key", f"{key}.pub", "--json")
    told = json.loads(text)
    assert (code, told["player"], told["seed_by"], told["score"]) == (
        0,
        "ada",
        DRAWN,
        logs.read(signed).end["score"]["total"],
    )
    other = signing.new(tmp_path / "eve.key")
    assert "another key has signed it" in said("--key", other)[1]
    log = logs.read(signed)
    log.write(signed)
    assert "nobody has signed it" in said("--key", f"{key}.pub")[1]


def test_a_seed_that_was_drawn_is_not_told_before_the_end() -> None:
    """With it, its world could be played elsewhere, to its truth."""
    game = drawn()
    seed = game.case.seed
    for line in ("ticket", "status", "topology", "actions", "help"):
        answer = game.command(line)
        assert seed not in answer.text + json.dumps(answer.data)
    assert seed not in json.dumps([game.ticket(), game.state()]) + game.ticket_text() + game.code
    assert game.command("give-up").ok and seed in json.dumps(game.command("report").data)
    chosen = Game.start(game.case, up=FakeWorld)  # type: ignore[arg-type]
    assert chosen.ticket()["seed"] == seed


@pytest.mark.parametrize(
    "end",
    [
        {},
        {"score": "x", "report": 5},
        {"score": ["x"], "report": {}},
        {"answer": None, "truth": "", "time_ns": 1, "score": {"x": 1}, "report": {"score": {"total": 10**400}}},
    ],
)
def test_a_log_that_somebody_has_written_himself_is_told_so(signed: Path, key: Path, end: dict[str, object]) -> None:
    """His hash is right, and his signature."""
    replace(logs.read(signed), end=end).write(signed, signing.private(key))
    for words in (["verify", str(signed), "--key", f"{key}.pub"], ["report", str(signed)]):
        done = CliRunner().invoke(drill.command, words)
        assert isinstance(done.exception, InputError) and done.exception.where.startswith(str(signed))
        assert done.exception.what.startswith("it is no whole log" if "truth" in end else "this log is damaged: end")
