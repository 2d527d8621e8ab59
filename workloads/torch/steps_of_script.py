"""Where a script's steps begin and end: its optimizer's steps, and calls of its model."""

from __future__ import annotations

from typing import Any

from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from workloads.torch.charge import Charge
from workloads.torch.recorder import Recorder


def install(recorder: Recorder, charge: Charge) -> None:
    """A step ends with the optimizer's; what comes before the model is first called is no part of one."""
    called = stepped = False

    def forward(*_: Any) -> None:
        nonlocal called, stepped
        stepped = False
        if not called:
            called = True
            recorder.model_is_called()
            charge.memory.model_is_called()
        charge.look()
        if recorder.phase == "optimizer":
            recorder.phase = "forward"

    def begins(*_: Any) -> None:
        if stepped:
            recorder.step_goes_on()
            charge.memory.step_goes_on()
        recorder.phase = "optimizer"
        charge.in_optimizer = True

    def ends(optimizer: Any, *_: Any) -> None:
        nonlocal stepped
        charge.memory.stepped(optimizer)
        stepped = True
        charge.in_optimizer = False
        recorder.phase = "forward"
        recorder.step_ends()
        charge.memory.step_ends()

    register_module_forward_pre_hook(forward)
    register_optimizer_step_pre_hook(begins)
    register_optimizer_step_post_hook(ends)
