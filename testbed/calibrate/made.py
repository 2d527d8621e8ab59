"""A calibration as a profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp
from pathlib import Path
from typing import Any

from results.store.replaced import replaceable
from testbed.base import yaml_writer
from testbed.base.errors import InputError
from testbed.calibrate.calibration import Calibration
from testbed.cluster.model import NAMES
from testbed.cluster.profile import Z90, Profile, dump, written
from testbed.logs.read import Source
from testbed.logs.row import Log

MOST_CHOICES = 200
"""That are written out; of more the tuner is asked."""


def profile(
    name: str, made: Calibration, log: Log, sources: Sequence[Source], held_out: Mapping[str, str], about: str = ""
) -> Profile:
    """With everything that a later prediction needs."""
    hardware = made.model.hardware
    x, sd = made.fitted.x, made.sd
    correlation = made.fitted.covariance / (made.fitted.sd[:, None] * made.fitted.sd[None, :])
    points = [one.point for one in made.points]
    data: dict[str, Any] = {
        "cluster": name,
        "about": about,
        "source": [{"file": one.name[-255:], "sha256": one.sha256, "rows": one.rows} for one in sources],
        "left_out": dict(sorted(log.left_out.items())),
        "hardware": {
            "gpu": hardware.gpu, "gpus": hardware.gpus, "nics": hardware.nics, "nic": f"{int(hardware.nic_bps)}bps",
            "host": hardware.host, "nvlink": hardware.nvlink, "assumed": list(hardware.assumed),
        },
        "library": {
            "name": "nccl", "version": hardware.version, "env": dict(sorted(log.library.env.items())),
            "choice": _choices(log) or "tuner",
        },
        "costs": {
            key: {
                "value": written(key, exp(x[k])),
                "interval": [written(key, exp(x[k] - Z90 * sd[k])), written(key, exp(x[k] + Z90 * sd[k]))],
                "told": bool(made.told[k]),
            }
            for k, key in enumerate(NAMES)
        },
        "correlation": {key: [round(float(c), 3) for c in correlation[k, : k + 1]] for k, key in enumerate(NAMES)},
        "scatter": made.scatter,
        "range": {
            "nodes": _ends([point.nodes for point in points]),
            "gpus": _ends([point.gpus for point in points]),
            "sizes": _ends([point.size_bytes for point in points]),
            "collectives": sorted({point.collective for point in points}),
        },
        "held_out": dict(held_out),
    }  # fmt: skip
    return Profile.model_validate(data)


def write(made: Profile, path: Path) -> None:
    """Raises InputError if it cannot be written."""
    write_plain(dump(made), path)


def write_plain(data: Mapping[str, Any], path: Path) -> None:
    """Likewise; nothing half-made is left."""
    path = replaceable(path)
    temporary = path.with_name(f".{path.name}.new")
    try:
        with temporary.open("w") as file:
            yaml_writer.dump(data, file)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(f"the profile cannot be written: {error.strerror}", str(path)) from None


def _ends(values: Sequence[int]) -> list[int]:
    return [min(values), max(values)]


def _choices(log: Log) -> list[dict[str, Any]]:
    """As a log has told them, with the channels that it names."""
    told = [one for one in log.library.choices.values() if one.channels and one.ranks and one.collective]
    if len(told) > MOST_CHOICES:
        return []
    return [
        {
            "collective": one.collective, "size": one.size_bytes, "algorithm": one.algorithm,
            "protocol": one.protocol, "channels": one.channels, "ranks": one.ranks,
        }
        for one in sorted(told)
    ]  # fmt: skip
