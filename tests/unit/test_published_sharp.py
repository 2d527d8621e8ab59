"""Published figures of SHARP against predictions: Graham et al., COM-HPC 2016 and ISC 2020 (docs/in-network.md)."""

from __future__ import annotations

from testbed.experiment import loads
from testbed.predict import predict


def us(algorithm: str, size: str, topology: str, rate: str, accelerator: str) -> float:
    """Hosts, cables and switches as in the paper of 2016: `pcie.latency` is what makes its hosts take 6.01 us."""
    experiment = loads(
        f"name: x\nfabric: {{topology: {{clos: {topology}}}, cable: {{rate: {rate}, delay: 10ns}}, "
        f"switch: {{latency: 90ns, accelerator: {accelerator}}}, nic: {{pcie: {{latency: 160ns}}}}}}\n"
        f"workload: [{{collective: all_reduce, algorithm: {algorithm}, sizes: [{size}], dtype: int32}}]"
    )
    (figure,) = predict(experiment).figures
    return figure.time_ns / 1000


def test_eight_bytes_on_128_hosts() -> None:
    """6.01 us by hosts and 2.83 by switches: what our accelerators take besides is up to `latency`."""
    fabric = "{leaves: 8, spines: 4, hosts_per_leaf: 16}", "100Gbps"
    assert abs(us("recursive_doubling", "8B", *fabric, "{}") - 6.01) < 0.005
    assert abs(us("in_network", "8B", *fabric, "{latency: 853ns}") - 2.83) < 0.005
    assert abs(us("in_network", "8B", *fabric, "{}") - (2.83 - 2 * 0.853)) < 0.005, "two accelerators one above another"


def test_large_vectors_come_near_the_rate_of_the_network_and_small_ones_gain_more() -> None:
    """About 95 % of the network's bandwidth, and 2 to 5 times as fast as by hosts."""
    fabric = "{leaves: 4, spines: 16, hosts_per_leaf: 16}", "200Gbps", "{elements: 1024}"
    large = us("in_network", "16MiB", *fabric)
    assert 0.95 < (16 << 20) / large / 25e3 < 0.98
    factors = [us("auto", size, *fabric) / us("in_network", size, *fabric) for size in ("16KiB", "64KiB")]
    assert 5.5 > factors[0] > factors[1] > 2
