"""Where a script's steps begin if its ranks come there apart: pipelines, messages that are under way meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from workloads.tasks.oracle import oracle, step_ns
from workloads.tasks.task import Compute
from workloads.torch.cut import BadScript
from workloads.torch.recorder import Recorder
from workloads.torch.steps import ScriptStep, steps

FLOPS = 1000  # a microsecond


def made(*recorders: Recorder) -> list[ScriptStep]:
    told: list[dict[str, Any]] = [recorder.recorded() for recorder in recorders]
    return steps(told, range(len(recorders)), lambda flops, nbytes, dtype: float(flops))


def recorders(many: int) -> list[Recorder]:
    found = [Recorder() for _ in range(many)]
    for one in found:
        one.groups = [{"name": "default_pg", "members": list(range(many))}]
    return found


def computes(one: Recorder) -> None:
    one.charge(FLOPS, 0, "float32")


def gets(one: Recorder, peer: int) -> None:
    one.wait([one.message("recv", peer, 64, "")])


def gives(one: Recorder, peer: int) -> None:
    one.message("send", peer, 64, "")


def kinds(step: ScriptStep) -> list[str]:
    return [" ".join(type(task).__name__ for task in its) for its in step.graph.tasks.values()]


def test_a_pipelines_second_rank_receives_before_its_model_is_called() -> None:
    first, second = recorders(2)
    for one in (first, second):
        one.host_waits([one.collective(0, "barrier", 0, "float32", None, "barrier")])
    for k in range(3):
        if not k:
            first.model_is_called()
        computes(first)
        gives(first, 1)
        gets(second, 0)
        if not k:
            second.model_is_called()
        computes(second)
        gives(second, 0)
        gets(first, 1)
        computes(first)
        for one in (first, second):
            one.step_ends()
    setup, trained = made(first, second)
    assert (setup.name, kinds(setup)) == ("setup", ["Collective"] * 2)
    assert (trained.name, trained.times) == ("steps 1 to 3", 3)
    assert kinds(trained) == ["Compute Send Recv Compute", "Recv Compute Send"]
    assert step_ns(oracle(trained.graph, lambda rank, task: 0.0)) == 3000


def test_what_is_sent_before_a_step_ends_arrives_in_it_though_it_is_received_in_the_next() -> None:
    """A pipeline without flushes: the first rank is always one micro-batch ahead."""
    first, second = recorders(2)
    first.model_is_called()
    second.model_is_called()
    for _ in range(4):
        computes(first)
        gives(first, 1)
        first.step_ends()
    for _ in range(4):
        computes(second)
        second.step_ends()
        gets(second, 0)
        computes(second)
    found = made(first, second)
    assert [(step.name, step.times) for step in found] == [("step 1", 1), ("steps 2 to 4", 3)]
    assert [kinds(step) for step in found] == [["Compute Send", "Compute Recv"]] * 2
    assert [t.duration_ns for t in found[1].graph.tasks[1] if isinstance(t, Compute)] == [2000]


def test_what_a_rank_has_used_of_a_later_step_is_of_that_step_with_all_that_follows() -> None:
    """The second rank says late that its step is over: what it does for the third's next one goes there."""
    first, second, third = recorders(3)
    for one in (first, second, third):
        one.model_is_called()
        one.collective(0, "all_reduce", 64, "float32", "sum", "gradients")
    first.step_ends()
    third.step_ends()
    computes(third)
    gives(third, 1)
    gets(second, 2)
    computes(second)
    gives(second, 0)  # goes along
    second.step_ends()
    gets(first, 1)
    for one in (first, second, third):
        one.collective(0, "all_reduce", 64, "float32", "sum", "gradients")
        one.step_ends()
    one_, two = made(first, second, third)
    assert kinds(one_) == ["Collective"] * 3
    assert kinds(two) == ["Recv Collective", "Recv Compute Send Collective", "Compute Send Collective"]


def test_a_collective_that_only_some_have_started_is_of_the_later_step() -> None:
    first, second = recorders(2)
    computes(first)
    first.collective(0, "broadcast", 64, "float32", None, "broadcast")  # nobody has waited for it yet
    computes(first)
    for one in (first, second):
        one.model_is_called()
    second.collective(0, "broadcast", 64, "float32", None, "broadcast")
    for one in (first, second):
        computes(one)
        one.step_ends()
    (step,) = made(first, second)
    assert step.name == "step 1" and kinds(step) == ["Collective Compute", "Collective Compute"]
    assert [t.duration_ns for t in step.graph.tasks[0] if isinstance(t, Compute)] == [1000]


def test_a_rank_without_a_model_and_a_script_without_an_optimizer_have_steps_too() -> None:
    first, second = recorders(2)
    gets(second, 0)
    second.model_is_called()
    computes(second)
    gives(first, 1)
    (script,) = made(first, second)
    assert (script.name, kinds(script)) == ("script", ["Send", "Recv Compute"])
    both = recorders(2)
    for one in both:
        computes(one)
        one.collective(0, "all_reduce", 64, "float32", "sum", "gradients")
        one.step_ends()
    (step,) = made(*both)
    assert (step.name, step.training) == ("step 1", True), "nobody has a model: there is no setup"


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (gives, "rank 0: it sends to rank 1 what that does not receive"),
        (gets, "rank 0: it receives from rank 1 what that does not send"),
    ],
)
def test_messages_without_a_partner_are_said_with_their_line(does: Any, said: str) -> None:
    first, second = recorders(2)
    first.script = __file__
    does(first, 1)
    with pytest.raises(BadScript, match=said) as raised:
        made(first, second)
    assert raised.value.line == does.__code__.co_firstlineno + 1
