"""A valid experiment file, and the errors of an invalid one."""

import pytest

from testbed.base.errors import InputError
from testbed.experiment import loads

GOOD = """\
name: probe
seed: 1
clock: virtual
fabric:
  topology:
    rail:
      servers: 4
      gpus: 2
  cable:
    rate: 400Gbps
    delay: 500ns
  nic:
    mtu: 4096
  scale_up: {rate: 3600Gbps}
control:
  routing: ecmp
workload:
  - collective: all_reduce
    sizes:
      - 1KiB
      - 64KiB
    ranks: [0, 1, 2]
  - flows:
      - {from: 0, to: 3, size: 10MB}
"""


def problems(text: str, name: str = "e.yaml", **kwargs) -> list[tuple[str, str, str]]:
    """(where, what, hint) of everything that is wrong with a text."""
    with pytest.raises(InputError) as caught:
        loads(text, name, **kwargs)
    error = caught.value
    assert error.exit_code == 2
    return [(error.where, error.what, error.hint), *((p.where, p.what, p.hint) for p in error.also)]


def line_of(text: str, fragment: str) -> int:
    return text[: text.index(fragment)].count("\n") + 1
