"""Bad steps of collectives: what is wrong, where, and what is allowed; and what grids and ways are."""

from __future__ import annotations

import pytest

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.plan.steps.plan import plan
from topologies import build
from topologies.ranks.grid import NoGrid, grid, servers_and_gpus
from topologies.ranks.hops import Hops

RAIL, TORUS, STAR = "{rail: {servers: 4, gpus: 2}}", "{torus: {dims: [3, 3]}}", "{star: {hosts: 8}}"


def experiment(topology: str, step: str, more: str = "") -> str:
    return f"name: x\nfabric: {{topology: {topology}{more}}}\nworkload:\n  - {{{step}}}\n"


@pytest.mark.parametrize(
    ("topology", "step", "where", "what", "hint"),
    [
        (STAR, "collective: all_reduce, algorithm: rings, sizes: [1KiB]", "algorithm", "rings", "auto"),
        (STAR, "collective: ping_pong, algorithm: auto, sizes: [1KiB], ranks: [0, 1]", "algorithm", "auto", "write"),
        (STAR, "collective: all_reduce, algorithm: halving_doubling, sizes: [1KiB], ranks: [0, 9]", "ranks[1]",
         "no rank 9", "ranks 0 to 7"),
        (STAR, "collective: all_to_all, sizes: [1KiB], ranks: [0, 2, 2]", "ranks[2]", "rank 2 stands twice", "once"),
        (TORUS, "collective: all_reduce, algorithm: torus, sizes: [1KiB], ranks: [0, 1, 3]", "ranks",
         "no grid: 2 x 2 would have rank 4, too", "whole rows and columns"),
        (STAR, "collective: all_reduce, algorithm: torus, sizes: [1KiB]", "algorithm", "a star have no coordinates",
         "a torus, ring or rail has"),
        (STAR, "collective: all_reduce, algorithm: rails, sizes: [1KiB]", "algorithm",
         "no scale-up domain", "rail"),
        (RAIL, "collective: all_reduce, algorithm: rails, sizes: [1KiB], ranks: [0, 2, 4]", "ranks",
         "no two of these ranks share a scale-up domain", "two GPUs"),
        (RAIL, "collective: all_reduce, algorithm: rails, sizes: [1KiB], ranks: [0, 1, 2]", "ranks", "no grid",
         "whole rows"),
        (STAR, "collective: gather_v, sizes: [1KiB], skew: 1, parts: [[1, 1, 1, 1, 1, 1, 1, 1]]", "skew",
         "parts say how unequal they are, and so does skew", "one of them"),
        (STAR, "collective: all_gather, sizes: [1KiB], op: sum", "op", "all_gather combines nothing", "leave op out"),
        (STAR, "collective: all_to_all, sizes: [1KiB], chunk: 1KiB", "chunk", "all_to_all by spread has no chunk",
         "leave chunk out"),
        (STAR, "collective: all_to_all, sizes: [1KiB], skew: 0.5", "skew", "has no skew", "leave skew out"),
        (TORUS, "collective: all_reduce, algorithm: swing, sizes: [1KiB]", "algorithm",
         "swing needs dimensions that are even, not 3 x 3", "another algorithm"),
        (STAR, "collective: all_to_all, algorithm: hypercube, sizes: [1KiB], ranks: [0, 1, 2]", "ranks",
         "a number of ranks that is a power of two, not 3", "another algorithm"),
        (STAR, "collective: gather_v, sizes: [1KiB], parts: [[1, 2]]", "parts", "1 x 8 ranks", "one row of 8"),
        (STAR, "collective: m2n, sizes: [1KiB], senders: 8", "senders", "of 8 ranks 8 cannot send", "1 to 7"),
        (STAR, "collective: m2n, sizes: [1KiB], senders: 0", "senders", "0 is out of bounds", ""),
        (STAR, "collective: all_to_all_v, sizes: [1KiB], skew: 2", "skew", "2 is out of bounds", ""),
        (STAR, "collective: m2n, sizes: [1KiB], ranks: [0, 1, 2], parts: [[1]]", "parts", "1 x 2 ranks", "1"),
        (STAR, "collective: n2m, sizes: [1KiB], ranks: [0, 1], parts: [[0]]", "parts", "nobody sends", "above 0"),
        (STAR, "collective: barrier, sizes: [1KiB]", "sizes[0]", "a barrier moves no data", "leave sizes out"),
        (STAR, "collective: broadcast", "sizes", "broadcast needs a size", "sizes: [1MiB]"),
        (STAR, "collective: broadcast, sizes: [3B], dtype: bfloat16", "sizes[0]", "bfloat16", "multiple of 2 bytes"),
        (STAR, "collective: all_reduce, sizes: [1MiB], chunk: 100B", "chunk", "more than 4096 pieces", "256B at least"),
        (STAR, "collective: send_recv, sizes: [1KiB]", "<collective>", "send_recv takes 2 ranks, not 8",
         "ranks: [0, 1]"),
    ],
)  # fmt: skip
def test_bad_steps(topology: str, step: str, where: str, what: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        loads(experiment(topology, step))
    problem = caught.value
    assert what in problem.what
    assert hint in problem.hint
    if where != "<collective>":
        assert problem.where.endswith(where)


def test_rails_without_the_domains_of_a_rail() -> None:
    with pytest.raises(InputError, match="no scale-up domain"):
        loads(experiment(RAIL, "collective: all_reduce, algorithm: rails, sizes: [1KiB]", ", scale_up: null"))


def test_every_default_is_written_out() -> None:
    step = loads(experiment(STAR, "collective: all_to_all_v, sizes: [1KiB]")).resolved()["workload"][0]
    assert (step["algorithm"], step["skew"], step["chunk"], step["op"]) == ("spread", 1.0, None, None)
    step = loads(experiment(STAR, "collective: barrier")).resolved()["workload"][0]
    assert (step["algorithm"], step["sizes"]) == ("dissemination", ["0B"])
    step = loads(experiment(STAR, "collective: all_reduce, algorithm: auto, sizes: [1KiB]")).resolved()["workload"][0]
    assert (step["algorithm"], step["op"]) == ("auto", "sum")


def test_a_plan_has_the_order_and_the_grid_that_suit_the_algorithm() -> None:
    def told(topology: str, step: str) -> dict[str, object]:
        found = plan(loads(experiment(topology, step))).told()["steps"][0]
        return {key: found[key] for key in ("ranks", "dims") if key in found}

    assert told(RAIL, "collective: all_reduce, algorithm: rails, sizes: [1KiB]") == {
        "ranks": list(range(8)),
        "dims": [4, 2],
    }
    assert told(RAIL, "collective: all_reduce, algorithm: torus, sizes: [1KiB], ranks: [6, 0, 2]") == {
        "ranks": [0, 2, 6],
        "dims": [3],
    }
    assert told(RAIL, "collective: broadcast, algorithm: chain, sizes: [1KiB]") == {"ranks": [0, 1, 3, 2, 4, 5, 7, 6]}
    assert told(STAR, "collective: broadcast, sizes: [1KiB]") == {"ranks": None}


def test_auto_chooses_among_what_the_group_can_do() -> None:
    made = plan(
        loads(experiment(RAIL, "collective: all_reduce, algorithm: auto, sizes: [1KiB, 16MiB], ranks: [0, 1, 2]"))
    )
    small, large = made.choices()
    others = {name for name in {**large["expected_ns"], **large["at_least_ns"]} if "[" not in name}
    assert set(small["expected_ns"]) == others
    assert {"torus", "rails"}.isdisjoint(small["expected_ns"]), "three ranks are no grid here"
    assert small["algorithm"] == min(small["expected_ns"], key=small["expected_ns"].__getitem__)
    whole = plan(loads(experiment(RAIL, "collective: all_reduce, algorithm: auto, sizes: [1KiB]"))).choices()
    assert {"torus", "rails"} <= set(whole[0]["expected_ns"])


@pytest.mark.parametrize(
    ("kind", "params", "ranks", "dims"),
    [
        ("torus", {"dims": [4, 4]}, range(16), (4, 4)),
        ("torus", {"dims": [2, 3, 2]}, [0, 1, 4, 5], (2, 2)),
        ("torus", {"dims": [4, 4]}, [1, 5, 9, 13], (4,)),
        ("ring", {"nodes": 6}, [0, 2, 3], (3,)),
        ("rail", {"servers": 3, "gpus": 4}, [0, 3, 8, 11], (2, 2)),
    ],
)
def test_grids(kind: str, params: dict[str, object], ranks: list[int], dims: tuple[int, ...]) -> None:
    assert grid(build(kind, params), list(ranks)) == dims


def test_groups_that_are_none() -> None:
    fabric = build("rail", {"servers": 2, "gpus": 3})
    assert servers_and_gpus(fabric, [1, 2, 4, 5]) == (2, 2)
    with pytest.raises(NoGrid, match="would have rank 4, too"):
        servers_and_gpus(fabric, [0, 1, 3, 5, 2])
    with pytest.raises(NoGrid, match="coordinates"):
        grid(build("clos", {"leaves": 2, "spines": 2, "hosts_per_leaf": 2}), [0, 1])


def test_hops_are_shortest_ways_spread_over_spines_and_the_shorter_way_round() -> None:
    clos = Hops(build("clos", {"leaves": 2, "spines": 4, "hosts_per_leaf": 8}))
    spines = set()
    for a in range(8):
        first, up, down, last = clos.between(a, 8)
        assert (first, last) == ((f"h{a}", "leaf0"), ("leaf1", "h8"))
        assert up[1] == down[0] and up[0] == "leaf0" and down[1] == "leaf1"
        spines.add(up[1])
    assert len(spines) > 1 and clos.between(0, 8) == clos.between(0, 8)
    torus = Hops(build("torus", {"dims": [5, 4]}))
    assert [b for _, b in torus.between(0, 4 * 4 + 2)] == ["sw0-0", "sw4-0", "sw4-1", "sw4-2", "h18"]
    assert not torus.in_scale_up(0, 1)
    rail = Hops(build("rail", {"servers": 2, "gpus": 2}))
    assert rail.in_scale_up(0, 1) and not rail.in_scale_up(1, 2)
