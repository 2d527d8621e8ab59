"""AICB's text workloads: the order of SimAI's state machine, its groups, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.chakra import aicb
from workloads.chakra.aicb import groups
from workloads.chakra.et import BadTrace
from workloads.tasks.oracle import oracle, step_ns
from workloads.tasks.task import Collective, Recv, Send

HEAD = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 2 ga: 1 all_gpus: 4 "
HEAD += "checkpoints: 0 checkpoint_initiates: 0 pp_comm: 0\n"
LAYERS = """2
attention\t-1\t100\tALLREDUCE\t4096\t200\tALLREDUCE\t4096\t150\tNONE\t0\t100
mlp\t-1\t300\tNONE\t0\t400\tNONE\t0\t350\tREDUCESCATTER\t8192\t100
"""


PIPE = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 2 vpp: 2 ga: 3 all_gpus: 4 "
PIPE += "checkpoints: 0 checkpoint_initiates: 0 pp_comm: 8192.0\n"
PHASES = "-1\t{}\tALLREDUCE\t4096\t{}\tNONE\t0\t{}\tNONE\t0\t1\n"
BATCH = "attention\t" + PHASES.format(1000, 2000, 500) + "mlp\t" + PHASES.format(3000, 4000, 1500)
ONCE = "\t-1\t0\tNONE\t0\t0\tNONE\t0\t0\tALLGATHER\t4096\t1\n"
STAGE = "8\ngrad_gather" + ONCE + 3 * BATCH + "cross_entropy\t-1\t700\tNONE\t0\t0\tNONE\t0\t0\tNONE\t0\t1\n"


def test_a_pipeline_goes_forward_through_all_micro_batches_and_back() -> None:
    """GPipe's form: a stage takes 4 us and two all-reduces of 1 us forward, 8 us back, and a message 2 us; at the end
    of the way forward each stage has its loss of 0.7 us.  Nobody has two copies, so there is nothing to gather."""
    graph = aicb.parse(PIPE + STAGE, 4)
    assert graph.groups == {"tensor": ((0, 1), (2, 3))}
    times = oracle(graph, lambda rank, task: 1000.0 if isinstance(task, Collective) else 2000.0)
    p, m, forward, back, message, loss = 2, 3, 6000, 8000, 2000, 700
    assert step_ns(times) == (m + p - 1) * (forward + back) + 2 * (p - 1) * message + loss
    for rank, its in graph.tasks.items():
        ends = [(task.peer, task.size_bytes) for task in its if isinstance(task, Send | Recv)]
        assert ends == 2 * m * [((rank + 2) % 4, 8192)]


def test_a_micro_benchmark_has_collectives_of_all_ranks_one_after_the_other() -> None:
    """As AICB's micro_test files, which SimAI's iterate_micro_benchmark() issues without their computations."""
    line = "micro_test\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tALLREDUCE\t{}\t1\n"
    graph = aicb.parse("MICRO\n2\n" + line.format(4096) + line.format(8192), 4)
    assert graph.groups == {"data": ((0, 1, 2, 3),)}
    assert [(t.collective, t.size_bytes) for t in graph.tasks[3]] == [("all_reduce", 4096), ("all_reduce", 8192)]
    assert step_ns(oracle(graph, lambda rank, task: 1000.0)) == 2000


def test_a_step_goes_forward_and_back_and_weights_are_exchanged_beside_it() -> None:
    graph = aicb.parse(HEAD + LAYERS, 4)
    assert graph.groups == {"tensor": ((0, 1), (2, 3)), "data": ((0, 2), (1, 3))}
    times = oracle(graph, lambda rank, task: 1000.0)
    assert {ids: span for (rank, ids), span in times.items() if rank == 3} == {
        "0 attention.forward": (0, 100),
        "0 attention.forward.all_reduce": (100, 1100),
        "1 mlp.forward": (1100, 1400),
        "1 mlp.input": (1400, 1800),
        "1 mlp.weight": (1800, 2150),
        "1 mlp.weight.reduce_scatter": (2150, 3150),  # nobody waits for it
        "0 attention.input": (2150, 2350),
        "0 attention.input.all_reduce": (2350, 3350),
        "0 attention.weight": (3350, 3500),
    }
    assert step_ns(times) == 3500
    its = [t for t in graph.tasks[0] if isinstance(t, Collective)]
    assert [(t.size_bytes, t.dtype, t.group, t.kind) for t in its] == [
        (4096, "float32", "tensor", "forward tensor"),
        (8192, "float32", "data", "weight gradient data"),
        (4096, "float32", "tensor", "input gradient tensor"),
    ]


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_groups_of_each_kind_are_all_ranks_once_and_cross_each_other(tensor: int, expert: int, apart: int) -> None:
    ranks = tensor * expert * apart
    found = groups(ranks, tensor, expert)
    sizes = {"tensor": tensor, "data": expert * apart, "expert": expert, "expert_data": apart}
    for name, tuples in found.items():
        assert sorted(r for members in tuples for r in members) == list(range(ranks))
        assert {len(members) for members in tuples} == {sizes[name]}
    for a in found["tensor"]:
        assert all(len({*a} & {*b}) == 1 for b in found["data"])
    for a in found["expert"]:
        assert all(len({*a} & {*b}) <= 1 for b in found["expert_data"])
        assert any({*a} <= {*b} for b in found["data"])  # of one data-parallel group
    assert found["tensor"][0] == tuple(range(tensor))


def test_groups_by_suffix_and_groups_of_one_rank_have_nothing_to_do() -> None:
    head = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 1 ep: 2\n1\n"
    line = "moe -1 10 ALLTOALL_EP 4096 10 ALLTOALL_EP 4096 10 REDUCESCATTER_DP_EP 4096 1\n"
    graph = aicb.parse(head + line, 4)
    assert graph.groups == {"expert": ((0, 1), (2, 3)), "expert_data": ((0, 2), (1, 3))}
    alone = aicb.parse(head.replace("ep: 2", "ep: 1") + line.replace("_DP_EP", "_TP"), 4)
    assert not alone.groups and len(alone.tasks[0]) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no head and no number of layers"),
        ("DATA\n1\n" + "x " * 12, "w:1: a workload of kind 'DATA' is not read"),
        ("MICRO\n1\nx -1 1 ALLREDUCE 8 1 NONE 0 1 NONE 0 1\n", "collectives of weights alone, and 'x' has others"),
        (HEAD.replace("pp: 1", "pp: 2") + LAYERS, "w:1: pp_comm 0: what goes between stages has 1 to 2147483648 bytes"),
        (
            HEAD.replace("pp: 1", "pp: 4") + LAYERS,
            "no whole number of groups of 2 (tensor) x 1 (ep) x 4 (pp)",
        ),
        (PIPE.replace("ga: 3", "ga: 4") + STAGE, "its layers are not those of 4 micro-batches (ga)"),
        (HEAD.replace("checkpoints: 0", "checkpoints: 1") + LAYERS, "w:1: checkpoints 1 is not read"),
        (HEAD.replace("all_gpus: 4", "all_gpus: 8") + LAYERS, "w:1: it is of 8 GPUs, and there are 4 ranks"),
        (HEAD.replace("group: 2", "group: 3") + LAYERS, "4 ranks are no whole number of groups of 3 (tensor) x 1"),
        (HEAD.replace("group: 2", "group: x") + LAYERS, "model_parallel_NPU_group is 'x', and not a whole number"),
        ("HYBRID_TRANSFORMER_FWD_IN_BCKWD ep: 1\n" + LAYERS, "model_parallel_NPU_group is missing"),
        (HEAD + LAYERS.replace("2\n", "3\n", 1), "w:2: 3 layers are announced, and there are 2"),
        (HEAD + LAYERS.replace("\t100\n", "\n", 1), "w:3: attention: a layer has 12 fields, and this has 11"),
        (HEAD + LAYERS.replace("ALLREDUCE", "ALLREDUCEALLTOALL"), "w:3: attention: there is no collective"),
        (HEAD + LAYERS.replace("4096", "0").replace("100", "9" * 18), "w:3: attention: a computation takes more than"),
        (HEAD + LAYERS.replace("4096", "-4096"), "w:3: a size is '-4096', and not a whole number"),
    ],
)
def test_what_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(BadTrace) as raised:
        aicb.parse(text, 4, "w")
    assert said in str(raised.value)


@given(st.text(max_size=200), st.sampled_from(("", HEAD, HEAD + "1\n", HEAD + "1\nx -1 ")))
def test_any_text_is_refused_or_read(text: str, before: str) -> None:
    try:
        aicb.parse(before + text, 4)
    except BadTrace as error:
        assert str(error).startswith("workload")


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "w.txt"
    path.write_text(HEAD + LAYERS)
    assert aicb.load(path, 4) == aicb.parse(HEAD + LAYERS, 4)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BadTrace, match="not UTF-8 text"):
        aicb.load(path, 4)
    with pytest.raises(BadTrace, match="cannot be read: there is no such file"):
        aicb.load(tmp_path / "none", 4)
