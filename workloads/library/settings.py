"""NCCL_* variables that change how a collective is carried out, and mean here what they mean there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")
FUNCTIONS = ("broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce")
_SPELLED = {name.replace("_", ""): name for name in (*ALGORITHMS, *PROTOCOLS, *FUNCTIONS)}


class WrongSetting(ValueError):
    """A variable that is none, or says what it cannot: what, and what it may be."""

    def __init__(self, variable: str, what: str, hint: str) -> None:
        super().__init__(f"{variable}: {what}")
        self.variable, self.what, self.hint = variable, what, hint


@dataclass(frozen=True)
class Allowed:
    """What a list like `ring,tree;allreduce:^tree` allows, by function."""

    of: Mapping[str, frozenset[str]]

    def __contains__(self, pair: tuple[str, str]) -> bool:
        function, element = pair
        return function not in self.of or element in self.of[function]

    def names(self, function: str) -> bool:
        """Whether anything is said of it: what is told is not asked whether it is any good (LL128)."""
        return function in self.of


@dataclass(frozen=True)
class Settings:
    """None, or 0: as the library has it."""

    algorithms: Allowed = Allowed({})
    protocols: Allowed = Allowed({})
    least_channels: int | None = None
    most_channels: int | None = None
    buffer_bytes: int = 4 << 20
    ll_buffer_bytes: int | None = None
    ll128_buffer_bytes: int | None = None
    p2p_chunk_bytes: int | None = None
    p2p_ll_bytes: int | None = None
    threads: int | None = None
    ll128_threads: int | None = None
    channels_of_net_peer: int | None = None
    channel_gbps: int = 14
    pxn: bool = True
    collnet: bool = False
    nvls: bool = True
    pat: bool | None = None
    net_overhead_us: float | None = None

    @classmethod
    def of(cls, variables: Mapping[str, object]) -> Settings:
        """Raises WrongSetting."""
        found: dict[str, object] = {}
        for variable, value in variables.items():
            if variable not in _READERS:
                raise WrongSetting(variable, "is no variable that changes a schedule", f"one of {', '.join(_READERS)}")
            key, read = _READERS[variable]
            found[key] = read(variable, str(value))
        return cls(**found)  # type: ignore[arg-type]


def _number(variable: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise WrongSetting(variable, f"{text!r} is no whole number", "a number, as NCCL reads it") from None
    if not 0 <= value <= 1 << 40:
        raise WrongSetting(variable, f"{value} is out of range", "0 or more")
    return value


def _positive(variable: str, text: str) -> int:
    value = _number(variable, text)
    if value < 1:
        raise WrongSetting(variable, f"{value} is out of range", "1 or more")
    return value


def _flag(variable: str, text: str) -> bool:
    return _number(variable, text) != 0


def _off(variable: str, text: str) -> bool:
    return not _flag(variable, text)


def _microseconds(variable: str, text: str) -> float:
    return _number(variable, text) / 1000


def _list(variable: str, text: str, elements: tuple[str, ...]) -> Allowed:
    of: dict[str, frozenset[str]] = {}
    for k, part in enumerate(text.split(";")):
        prefix, _, names = part.rpartition(":")
        if not prefix and k:
            raise WrongSetting(variable, f"{part!r} has no function before it", "only the first list may be for all")
        functions = [_name(variable, prefix, FUNCTIONS)] if prefix else FUNCTIONS
        inverted = names.startswith("^")
        said = {_name(variable, name, elements) for name in names.removeprefix("^").split(",")}
        of |= dict.fromkeys(functions, frozenset(set(elements) - said if inverted else said))
    return Allowed(of)


def _name(variable: str, text: str, names: tuple[str, ...]) -> str:
    found = _SPELLED.get(text.strip().lower().replace("_", ""), "")
    if found not in names:
        known = ", ".join(name.replace("_", "") for name in names)
        raise WrongSetting(variable, f"{text!r} is unknown", f"of {known}")
    return found


def _algorithms(variable: str, text: str) -> Allowed:
    return _list(variable, text, ALGORITHMS)


def _protocols(variable: str, text: str) -> Allowed:
    return _list(variable, text, PROTOCOLS)


_READERS = {
    "NCCL_ALGO": ("algorithms", _algorithms),
    "NCCL_PROTO": ("protocols", _protocols),
    "NCCL_MIN_CTAS": ("least_channels", _positive),
    "NCCL_MAX_CTAS": ("most_channels", _positive),
    "NCCL_MIN_NCHANNELS": ("least_channels", _positive),
    "NCCL_MAX_NCHANNELS": ("most_channels", _positive),
    "NCCL_BUFFSIZE": ("buffer_bytes", _positive),
    "NCCL_LL_BUFFSIZE": ("ll_buffer_bytes", _positive),
    "NCCL_LL128_BUFFSIZE": ("ll128_buffer_bytes", _positive),
    "NCCL_P2P_LL_THRESHOLD": ("p2p_ll_bytes", _number),
    "NCCL_P2P_NET_CHUNKSIZE": ("p2p_chunk_bytes", _positive),
    "NCCL_NTHREADS": ("threads", _positive),
    "NCCL_LL128_NTHREADS": ("ll128_threads", _positive),
    "NCCL_NCHANNELS_PER_NET_PEER": ("channels_of_net_peer", _positive),
    "NCCL_P2P_PER_CHANNEL_NET_BW": ("channel_gbps", _positive),
    "NCCL_PXN_DISABLE": ("pxn", _off),
    "NCCL_COLLNET_ENABLE": ("collnet", _flag),
    "NCCL_NVLS_ENABLE": ("nvls", _flag),
    "NCCL_PAT_ENABLE": ("pat", _flag),
    "NCCL_NET_OVERHEAD": ("net_overhead_us", _microseconds),
}
VARIABLES = tuple(_READERS)
RCCL = {
    "NCCL_NVLS_ENABLE": "0", "NCCL_PAT_ENABLE": "0", "NCCL_PROTO": "^LL128",
    "NCCL_NTHREADS": "256", "NCCL_LL_BUFFSIZE": str(256 << 10),
}  # fmt: skip
"""What RCCL 2.21.5 has where NCCL has something else, in NCCL's words: no switch that adds up, no PAT, LL128 on MI200
alone (src/graph/tuning.cc), 256 threads, and so half of NCCL's buffer for LL (src/include/device.h, src/init.cc)."""
