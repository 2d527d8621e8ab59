"""Files that ssh has too: host keys, keys, configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import paramiko
import pytest

from testbed.base.errors import InputError, MachineError
from testbed.machines import ssh
from testbed.machines.where import Machine, Other

OTHER = Other("lab1", Machine(host="lab1"), "machines.yaml:2: machines[0].host")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(ssh, "_SYSTEM_KNOWN", ())
    (tmp_path / ".ssh").mkdir()
    return tmp_path / ".ssh"


def test_host_keys_are_read_line_by_line(home: Path) -> None:
    keys = [paramiko.ECDSAKey.generate() for _ in range(3)]
    lines = [f"{key.get_name()} {key.get_base64()}" for key in keys]
    file = home / "known_hosts"
    file.write_text(
        f"# ours\n@cert-authority * {lines[0]}\nlab1 {lines[1]}\nlab2 {lines[2]}\n@revoked lab2 {lines[2]}\n"
    )
    client = paramiko.SSHClient()
    assert ssh._learn(client, [str(file)]) == {keys[2].asbytes()}
    assert list(client.get_host_keys().keys()) == ["lab1"]
    refuse = ssh._Refuse({keys[2].asbytes()})
    for key, kind in ((keys[2], ssh._Revoked), (keys[0], ssh._Unknown)):
        with pytest.raises(ssh._Unknown) as error:
            refuse.missing_host_key(client, "lab2", key)
        assert type(error.value) is kind
    file.write_text(f"lab1 {lines[1]}\nlab2 ssh-ed25519 AAAAC\n")
    with pytest.raises(InputError) as wrong:
        ssh.connect(OTHER)
    assert wrong.value.what == "lab1: this host key cannot be read" and wrong.value.where == f"{file}:2"


def test_keys_that_are_not_there_are_left_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "config").write_text(f"Host lab1\n  IdentityFile {home}/none\n  IdentityFile {home}/one\n")
    asked: list[dict[str, Any]] = []

    def connect(self: paramiko.SSHClient, *_: Any, **how: Any) -> None:
        asked.append(how)
        raise EOFError

    monkeypatch.setattr(paramiko.SSHClient, "connect", connect)
    for _ in range(2):
        with pytest.raises(MachineError, match="cannot be reached"):
            ssh.connect(OTHER)
        (home / "one").touch()
    assert [(how["key_filename"], how["look_for_keys"]) for how in asked] == [
        (None, True),
        ([f"{home}/one"], False),
    ]


def test_a_file_that_cannot_be_read_is_no_machine_that_cannot_be_reached(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def config() -> paramiko.SSHConfig:
        raise PermissionError(13, "Permission denied", str(home / "config"))

    monkeypatch.setattr(ssh, "_config", config)
    with pytest.raises(InputError, match=rf"lab1: {home}/config: Permission denied"):
        ssh.connect(OTHER)


def test_a_proxy_command_does_not_hear_the_terminals_interrupt() -> None:
    command = ssh._Command("cat")
    try:
        assert os.getsid(command.process.pid) == command.process.pid
    finally:
        command.close()
        command.process.wait(60)
