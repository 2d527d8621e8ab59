"""`cluster:` of the experiment file: what a profile fills in, where the file says nothing else.

The fabric's cables carry what the profile's NICs carry, headers included; GPUs' links, the cost of a message, the
library's constants and what GPUs compute are the profile's. So a fault changes the same things as without a profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.base.errors import InputError
from testbed.base.types import mistake
from testbed.base.units import format_rate, format_time
from testbed.cluster.gpu import GpuProfile
from testbed.cluster.profile import Profile, load
from testbed.experiment.blocks import known
from topologies.graph import frames
from workloads.library.settings import VARIABLES

READY = Path(__file__).parents[2] / "hardware" / "profiles"
MTU = 4096


def with_profile(value: Any, directory: Path) -> Any:
    """An experiment as it is written, with what its cluster's profile says.  Raises what a validator raises."""
    if not isinstance(value, dict) or value.get("cluster") is None:
        return value
    written = value["cluster"]
    if isinstance(written, str):
        profile = _loaded(written, directory)
    else:
        profile = written if isinstance(written, Profile) else Profile.model_validate(written)
    filled = {**_merged(_said(profile, value), value), "cluster": profile}
    if profile.compute is not None and isinstance(value.get("workload"), list):
        filled["workload"] = [_computing(step, profile.compute) for step in value["workload"]]
    return filled


def _computing(step: Any, compute: GpuProfile) -> Any:
    """A training step whose GPUs are the cluster's, unless it says what they take."""
    train = step.get("train") if isinstance(step, dict) else None
    if not isinstance(train, dict):
        return step
    gpu = train.get("gpu")
    if not isinstance(gpu, dict) or "measured" in gpu or "efficiency" in gpu:
        return step
    return {**step, "train": {**train, "gpu": {**gpu, "measured": compute}}}


def _loaded(name: str, directory: Path) -> Profile:
    """From beside the experiment, from the current folder, or one that comes along."""
    places = [directory / name, Path(name), READY / name, READY / f"{name}.yaml"]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        ready = ", ".join(sorted(one.stem for one in READY.glob("*.yaml"))) or "none"
        what = f"there is no cluster profile {name!r:.80}"
        hint = f"a file beside the experiment or here, or a ready one: {ready}; `testbed calibrate` makes one"
        raise mistake(what, hint, ["cluster"])
    try:
        return load(path)
    except InputError as error:
        raise mistake(f"{error.where}: {error.what}", error.hint, ["cluster"]) from None


def _said(profile: Profile, value: Mapping[str, Any]) -> dict[str, Any]:
    """What an experiment would have written."""
    values = profile.values()
    fabric: dict[str, Any] = {}
    if "nic.rate" in values:
        share = MTU / (MTU + frames.FRAME_BYTES)
        fabric["cable"] = {"rate": format_rate(round(values["nic.rate"] / share))}
    written = value.get("fabric")
    topology = written.get("topology") if isinstance(written, dict) else None
    if "nvlink.rate" in values and known.with_scale_up(topology):
        fabric["scale_up"] = {"rate": format_rate(round(values["nvlink.rate"]))}
    library = profile.library
    said = {
        "name": library.name,
        "version": library.version,
        "gpu": profile.hardware.gpu,
        "host": profile.hardware.host,
        "env": {key: text for key, text in library.env.items() if key in VARIABLES},
        "costs": {name: cost.value for name, cost in profile.costs.items()},
    }
    costs = {"post": format_time(values["net.message"])} if "net.message" in values else {}
    return {"fabric": fabric, "library": said, "costs": costs}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` wins, key by key; of lists and of `null` as a whole."""
    merged = dict(above)
    for key, value in below.items():
        if key not in merged:
            merged[key] = value
        elif isinstance(value, dict) and isinstance(merged[key], dict):
            merged[key] = _merged(value, merged[key])
    return merged
