"""A fabricd that is older than its sources is not started: it would not understand what it is told."""

import os

import pytest

from hardware import client


def test_an_old_fabricd_is_refused_by_name_of_the_newer_source(tmp_path, monkeypatch):
    binary, sources = tmp_path / "bin" / "fabricd", tmp_path / "fabricd"
    (sources / "link").mkdir(parents=True)
    binary.parent.mkdir()
    for file in (binary, sources / "main.c", sources / "link" / "port.h"):
        file.write_text("")
        os.utime(file, (1000, 1000))
    monkeypatch.setattr(client, "BINARY", binary)
    monkeypatch.setattr(client, "SOURCES", sources)
    monkeypatch.setattr(client, "CHECKOUT", tmp_path)
    assert client.newer_source(binary, sources) is None

    os.utime(sources / "link" / "port.h", (1001, 1001))
    with pytest.raises(client.FabricdError, match=r"older than .*link/port\.h: build it again"):
        client.Fabricd.start({}, tmp_path, binary=binary)
    assert not (tmp_path / "fabricd.json").exists()
