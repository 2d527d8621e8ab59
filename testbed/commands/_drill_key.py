"""`testbed drill key` and `verify`: games that a server vouches for."""

from __future__ import annotations

import json
from pathlib import Path

import click

from testbed.commands._say import say


@click.command("key")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def key(file: str, as_json: bool) -> None:
    """Make a key pair to sign games with: the private key in FILE, for its owner alone, the public one in FILE.pub.

    `testbed drill serve` and `instruct` sign a game's log with `--sign FILE`. Give others FILE.pub, and nobody FILE.

    \b
    Examples:
      testbed drill key ~/referee.key
    """
    from drills.proof.signing import new

    public = new(Path(file))
    say(json.dumps({"private": file, "public": f"{file}.pub", "key": public}) if as_json else f"{file}.pub: {public}")


@click.command("verify")
@click.argument("logs", nargs=-1, required=True, type=click.Path(dir_okay=False))
@click.option("--key", metavar="KEY", required=True, help="Whose signature: a public key, or the file that has it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a log on stdout.")
def verify(logs: tuple[str, ...], key: str, as_json: bool) -> None:
    """Say whether KEY has signed LOGS, and what it vouches for: the player, the world, whose choice it was, the score.

    Nothing is played. `testbed drill replay LOG --verify` plays it again; `leaderboard --key KEY` does both.

    \b
    Examples:
      testbed drill verify results/drills/20260101-101500-sealed.log --key referee.key.pub
    """
    from drills.log import read, whole_log
    from drills.proof.signing import public
    from testbed.base.errors import InputError

    signer = public(key)
    for name in logs:
        log = read(Path(name))
        if log.signed_by != signer:
            what = f"another key has signed it: {log.signed_by}" if log.signed_by else "nobody has signed it"
            raise InputError(what, name, f"not {signer}")
        with whole_log(name):
            score = log.end["score"]
            claim = {
                "log": name, "key": signer, "sha256": log.sha256, "player": log.head.get("player", ""), "score": None,
                **{what: log.head[what] for what in ("drill", "seed", "seed_by", "began", "instructed")},
                **({"score": score["total"]} if score else {}),
            }  # fmt: skip
        if as_json:
            say(json.dumps(claim))
        else:
            say(f"signed: {claim['player'] or '-'}, {claim['drill']}, seed {claim['seed']} ({claim['seed_by']}), "
                f"began {claim['began']}, score {claim['score']}, sha256 {log.sha256[:16]}")  # fmt: skip
