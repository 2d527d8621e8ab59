"""A live fabric whose workers are threads of the test, each with a device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from testbed.experiment import loads
from testbed.fabric.lab import Lab
from workloads.verbs import Device

SWITCHES = """
name: offload
fabric:
  topology: TOPOLOGY
  switch: {accelerator: ACCELERATOR}
"""


@contextmanager
def offload_fabric(topology: str, accelerator: str = "{}", more: str = "") -> Iterator[Lab]:
    text = SWITCHES.replace("TOPOLOGY", topology).replace("ACCELERATOR", accelerator) + more
    lab = Lab.up(loads(text))
    try:
        yield lab
    finally:
        lab.down()


def on_ranks(lab: Lab, ranks: Sequence[int], work: Callable[[Device], Any]) -> dict[int, Any]:
    """What `work` returns on each rank. Its exceptions are raised here, after all have ended."""
    lab.fabricd.request("start", ranks=list(ranks))
    results: dict[int, Any] = {}
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            with Device(str(lab.worker_dir(rank) / "sock")) as device:
                results[rank] = work(device)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a rank hangs"
    if errors:
        raise errors[0]
    return results
