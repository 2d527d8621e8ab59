"""The file that names machines: every mistake with its line and key; and by what a point is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.machines.identity import file_hashes, point_hash, resolved_hash
from testbed.machines.needs import memory_of
from testbed.machines.ssh import by_hand
from testbed.machines.where import where
from testbed.run.sweep import at
from tests.parts.small_sweep import SWEEP


def read(tmp_path: Path, text: str) -> InputError:
    path = tmp_path / "machines.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        where(str(path))
    assert error.value.exit_code == 2 and error.value.where.startswith(f"{path}:")
    return error.value


@pytest.mark.parametrize(
    ("text", "line", "key", "what"),
    [
        ("machines: []\n", 1, "machines", "the list is empty"),
        ("machines:\n  - {host: a, local: 2}\n", 2, "machines[0]", "a machine is {host: NAME, ..} or {local: N}"),
        ("machines:\n  - {host: a}\n  - {}\n", 3, "machines[1]", "a machine is {host: NAME, ..} or {local: N}"),
        ("machines:\n  - {local: 2, port: 22}\n", 2, "machines[0].port", "this machine needs no port"),
        ("machines:\n  - host: a\n    prot: 22\n", 3, "machines[0].prot", "unknown key 'prot'"),
        ("machines:\n  - host: a\n    port: 70000\n", 3, "machines[0].port", "out of bounds"),
        ("machines:\n  - host: -oProxyCommand=x\n", 2, "machines[0].host", "is no host"),
        ("machines:\n  - host: 'a;b'\n", 2, "machines[0].host", "is no host"),
        ("machines:\n  - {host: a, user: 'a b'}\n", 2, "machines[0].user", "is no user"),
        ("machines:\n  - {host: a, key: /nowhere/key}\n", 2, "machines[0].key", "there is no key file"),
        ("machines:\n  - {host: a, testbed: here}\n", 2, "machines[0].testbed", "is no absolute path"),
        ("machines:\n  - {host: a, points: 0}\n", 2, "machines[0].points", "out of bounds"),
        ("machines:\n  - {host: a}\n  - {host: a}\n", 3, "machines[1]", "a stands twice"),
        ("machines: [\n", 2, "", "not YAML"),
        ("- a\n", 1, "", "a list of machines is a mapping"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, line: int, key: str, what: str) -> None:
    error = read(tmp_path, text)
    said = [(error.what, error.where), *((p.what, p.where) for p in error.also)]
    place = f"{tmp_path}/machines.yaml:{line}" + (f": {key}" if key else "")
    assert any(what in told and at == place for told, at in said), said


def test_a_file_says_where_points_run(tmp_path: Path) -> None:
    path = tmp_path / "machines.yaml"
    path.write_text("machines:\n  - {host: lab1, points: 3}\n  - {local: 2}\n  - {host: lab1, port: 2222}\n")
    places = where(str(path))
    assert places.here == 2 and [one.name for one in places.others] == ["lab1", "lab1:2222"]
    assert places.others[0].machine.points == 3 and places.others[1].place == f"{path}:4: machines[2].host"
    assert where("local:7").here == 7
    with pytest.raises(InputError, match="there is no such file"):
        where(str(tmp_path / "none.yaml"))


def test_a_point_is_known_by_all_that_it_says_and_by_the_files_it_names(tmp_path: Path) -> None:
    sweep = loads(SWEEP + "sweep: {seed: [1, 2]}\n")
    assert point_hash(at(sweep, 0)) != point_hash(at(sweep, 1))
    assert point_hash(at(sweep, 0)) == point_hash(loads(SWEEP + "seed: 1\n"))  # a default, or said
    assert point_hash(at(sweep, 0)) == point_hash(at(loads(SWEEP + "sweep: {seed: [2, 1]}\n"), 1))
    app = tmp_path / "app.py"
    app.write_text("x = 1\n")
    named = loads(SWEEP + f"control: {{apps: [{app}]}}\n")
    before = point_hash(named)
    assert list(file_hashes(named)) == [str(app)]
    app.write_text("x = 22\n")
    assert point_hash(named) != before and resolved_hash(named) == resolved_hash(named)


def test_a_point_with_more_ranks_needs_more_memory() -> None:
    small, large = (loads(SWEEP.replace("hosts: 2", f"hosts: {n}")) for n in (2, 64))
    assert memory_of(small) < memory_of(large) < 16 << 30
    reduced = SWEEP.partition("workload")[0] + "workload: [{collective: all_reduce, sizes: [1GiB]}]\n"
    assert memory_of(loads(reduced)) > memory_of(small) + (2 << 30)


def test_what_to_type_by_hand_is_the_same_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key 1").touch()
    told = f"machines: [{{host: a}}, {{host: b, user: root, port: 2222, key: '{tmp_path}/key 1'}}]\n"
    (tmp_path / "machines.yaml").write_text(told)
    monkeypatch.delenv("SUDO_USER", raising=False)
    one, other = where(str(tmp_path / "machines.yaml")).others
    assert by_hand(one) == "ssh a" and by_hand(other) == f"ssh -p 2222 -i '{tmp_path}/key 1' root@b"
    monkeypatch.setenv("SUDO_USER", "ada")
    assert by_hand(one) == "sudo ssh a"
