"""The tables of docs/congestion-control.md: `python -m tests.pages.congestion_control` prints them."""

from __future__ import annotations

from collections.abc import Iterator

from hardware import bounds
from hardware.cc import CONTROLS, Control, Parameter, Setting

RATE, MTU = 400e9, 4096
EXAMPLE = Setting(
    RATE,
    bounds.base_rtt_ns(1, rate_bps=RATE, delay_ns=500, latency_ns=500, mtu=MTU, pcie_bps=512e9, pcie_ns=500),
    MTU,
    bounds.fetch_ns(MTU, 512e9, 500),
    1,
    bounds.hop_ns(rate_bps=RATE, delay_ns=500, latency_ns=500, mtu=MTU),
)
"""One switch, 400 Gb/s, 500 ns cables and pipelines."""
UNITS = {
    "rate": ((1e9, "Gbps"), (1e6, "Mbps")),
    "time": ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns")),
    "size": ((1e6, "MB"), (1e3, "KB"), (1, "B")),
}


def text(value: float, parameter: Parameter) -> str:
    """As in an experiment file."""
    kind = parameter.kind
    if kind == "choice":
        return parameter.choices[int(value)]
    if kind == "number":
        return f"{value:.4g}"
    if not value:
        return "0"
    factor, unit = next((u for u in UNITS[kind] if value >= u[0]), UNITS[kind][-1])
    return f"{value / factor:.4g}{unit}"


def tables() -> str:
    """Every control's parameters."""
    return "\n".join(line for control in CONTROLS.values() if control.parameters for line in _table(control))


def _table(control: Control) -> Iterator[str]:
    sets = list(control.sets) or ["default"]
    values = [control.values(EXAMPLE, {}, name if control.sets else None) for name in sets]
    yield f"### `{control.name}`: {control.summary}"
    if control.source:
        yield f"Source: {control.source}. Hears {', '.join(control.hears)}."
    yield ""
    yield "| parameter | what it is | " + " | ".join(f"`{s}`" if control.sets else s for s in sets) + " |"
    yield "|---|---|" + "---|" * len(sets)
    for p in control.parameters:
        yield f"| `{p.name}` | {p.about} | " + " | ".join(text(v[p.name], p) for v in values) + " |"
    yield ""


if __name__ == "__main__":
    print(tables())
