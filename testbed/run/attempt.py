"""One run under way: its workers are started and followed, its figures collected, and at the end stored."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING, Any

from results.figures.checkpoints import accounts
from results.figures.fidelity import Fidelity, StealMeter, silent
from results.figures.going_on import going_on
from results.figures.report import report
from results.figures.scaled import all_scaled
from results.figures.serving import served
from results.figures.sharing import shares
from results.figures.timeline import StepTime
from results.figures.timeline import steps as step_times
from results.frames.metrics import (
    Row,
    counter_totals,
    metrics_sha256,
)
from results.frames.series import PLACES, SAMPLES
from results.store.environment import environment
from results.store.folder import RunFolder, imports_for_frames
from results.store.load import LIVE
from testbed.base import this_process, yaml_writer
from testbed.base.errors import RUN_FAILED, Problem
from testbed.base.progress import Progress
from testbed.base.worker_output import OutputParser
from testbed.experiment.basis import Basis
from testbed.inject.agent import Agent
from testbed.inject.faults import put_in, requests_of
from testbed.live import workers
from testbed.live.verdict import judged
from testbed.logs.outputs import Outputs
from testbed.plan import together
from testbed.plan.hardware import written_control
from testbed.plan.steps.plan import capture_ports, plan
from testbed.plan.thresholds import marking
from testbed.run import measured, own_files
from testbed.run.diagnosis import Symptoms, diagnose, wrong_results
from testbed.run.launcher import NAME as LAUNCHER
from testbed.run.launcher import Launcher, later, without
from testbed.run.notes import CONTROLLER_DIED, doing, done, noteworthy
from testbed.run.outcome import RunFailed, RunInterrupted, RunResult
from testbed.run.profile import FILE, WORKLOAD, Profile
from testbed.run.watch import Watch
from workloads.base import numpy_core

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.fabric.lab import Lab
    from testbed.live.tenant import Tenant


@dataclass
class Attempt:
    """One run under way: what it has measured so far, and its folder."""

    experiment: Experiment
    folder: RunFolder
    progress: Progress
    tenant: Tenant | None = None  # of a fabric that was up before, and stays
    profile: Profile = field(default_factory=Profile)
    problem: Problem | None = None
    counters: dict[str, Any] = field(default_factory=dict)
    fidelity: Fidelity = field(
        default_factory=lambda: Fidelity("invalid", ["the hardware's counters could not be read"])
    )
    stopped: int = 0
    live: dict[str, Any] = field(default_factory=dict)  # of a fabric that was up: what was in force on it besides
    settled: bool = False  # the fabric has run empty, and nothing of it is still being written
    _lines: list[dict[str, Any]] = field(default_factory=list)
    _events: list[dict[str, Any]] = field(default_factory=list)
    _agent: Agent | None = None
    _workers: Sequence[workers.WorkerProcess] = ()
    _controller_messages: list[dict[str, Any]] = field(default_factory=list)
    _measured: measured.Measured | None = None
    _unwritten: Exception | None = None  # why its frames could not be written

    def __post_init__(self) -> None:
        self.plan = plan(self.experiment)
        self._launcher = Launcher.of(self.plan)
        self._outputs = Outputs(self.folder.path)
        self.steps = self.plan.described()
        self.environment = environment(self.experiment.seed)
        self.resolved = self.experiment.resolved()
        with (self.folder.path / "experiment.yaml").open("w") as file:
            yaml_writer.dump(self.resolved, file)
        own_files.keep(self.experiment, self.folder.path)
        self.folder.write_json("environment.json", self.environment)
        self.folder.write_json("congestion-control.json", written_control(self.experiment))
        self.folder.write_json("steps.json", {"ranks": self.plan.ranks, "steps": self.steps})
        for number, step in enumerate(self.plan.steps):
            for rank, text in enumerate(step.printed):
                (self.folder.logs / f"script{number}.rank{rank}.log").write_text(text)

    @property
    def goes_on(self) -> bool:
        """Whether a launcher starts its ranks again."""
        return self._launcher is not None

    def leave(self, lab: Lab) -> None:
        """Takes the fabric down, or, if it was up before, leaves it as it was."""
        if self.tenant:
            try:
                self.keep_live()
            finally:
                self.tenant.leave([] if self.settled and self.tenant.keeps else self.plan.endpoints, self._agent)
        else:
            lab.down()

    def keep_live(self) -> None:
        """Stores what is in force on a fabric that was up before: its figures are not those of the experiment alone."""
        if self.tenant:
            self.live = self.tenant.in_force()
            if self.live:
                self.folder.write_json(LIVE, self.live)

    def _counted(self, counters: dict[str, Any]) -> dict[str, Any]:
        return self.tenant.counters(counters) if self.tenant else counters

    # -- while the fabric is up

    def measure(self, lab: Lab) -> None:
        """Runs the workers to their end, or to the first failure (then `problem` says which)."""
        steal = StealMeter()
        self._outputs.dilation = lab.dilation
        captures = self._capture(lab)
        self._sample(lab)
        try:
            symptoms = self._followed(lab)
            self.profile.end(lab)
            if symptoms.failed:
                with suppress(Exception):  # fabricd may be what failed
                    self.counters = self._counted(lab.fabricd.request("counters", timeout=2.0))
                symptoms.counters = self.counters
                self._keep_logs(lab)
                self.problem = diagnose(symptoms, lab.fabric, self.folder.logs)
            else:
                self._settle(lab, captures)
        finally:
            self._keep_logs(lab)
        self.folder.write_json("counters.json", self.counters)
        if self.counters:
            self.fidelity = self._judge(steal.share())

    def _followed(self, lab: Lab) -> Symptoms:
        """Starts the workers and follows them to their end; if their launcher starts them again, until the last one."""
        self.profile.begin(lab)
        self._began = time.monotonic()
        requests = self._requests(lab)
        for event in self.plan.choices():
            self._on_event(event)
        now_ns = 0.0
        while True:
            its = list(later(requests, now_ns)) if now_ns else requests
            its += self._launcher.failure(now_ns) if self._launcher else []
            with ExitStack() as files:
                symptoms = self._start(lab, files, its, now_ns).run()
            if self._launcher is None or not self._launcher.noticed:
                return symptoms
            now_ns = lab.fabricd.next_job()
            said = self._launcher.again(self._lines, now_ns)
            self._lines = self._launcher.whole(self._lines)
            self._on_event(said)
            self.progress.note(f"rank {said['rank']} has ended: all start again, {said['lost']} steps are lost")

    def _start(self, lab: Lab, files: ExitStack, requests: list[dict[str, Any]], now_ns: float) -> Watch:
        """Starts the workers and, with the virtual clock, time."""
        self.progress.stage("starting the workers")
        plan = self._launcher.plan_of(self.plan) if self._launcher else self.plan
        groups = together.processes(self.experiment, self.plan.endpoints, self._struck(lab, requests))
        for rank in self.plan.endpoints:
            (self.folder.logs / f"rank{rank}.log").touch()
        started = workers.start(lab, plan, groups)
        watch = Watch(
            started,
            OutputParser(plan.told()),
            lab.fabricd,
            {"fabricd": lab.hardware, "controller": lab.controller, **lab.helpers},
            retry_s=self._retry_s(lab),
            patience_s=self.experiment.patience / 1e9,
            on_line=self._on_line,
            on_progress=lambda line: self.progress.doing(doing(line)),
            on_text=self._on_text,
            on_event=self._on_event,
            on_waiting=self.progress.waiting,
            forgives=lambda: self._launcher is not None and self._launcher.may,
            began=self._began,
        )
        files.callback(watch.close)
        self._workers, self._watch = started, watch
        self._agent = Agent(lab, watch.kill)
        put_in(lab.fabricd, (*requests, *(self._launcher.looks(now_ns) if self._launcher else ())))
        if self.experiment.clock.mode == "virtual":
            lab.fabricd.request("start", ranks=[rank for process in started for rank in process.ranks])
        self.progress.measure(self.plan.measurements)
        self.profile.stage(WORKLOAD)
        if this_process.ours:
            numpy_core.import_core()  # the workers are at work, we are not
        Thread(target=imports_for_frames, name="imports").start()
        return watch

    def _requests(self, lab: Lab) -> list[dict[str, Any]]:
        """The experiment's faults, as fabricd takes them. Their effects on processes are carried out by the agent."""
        names = [f"f{k + 1}" for k in range(len(self.experiment.inject))]
        began_ns = 0.0
        if self.tenant:
            names, began_ns = self.tenant.fault_names(len(names)), self.tenant.began_ns
        return requests_of(self.experiment.inject, names, self.experiment, lab.fabric, now_ns=began_ns)

    def _struck(self, lab: Lab, requests: list[dict[str, Any]]) -> set[int]:
        """The ranks whose processes a fault is for, ours or one that is there already: nobody shares theirs."""
        there = lab.fabricd.request("faults")["faults"] if self.tenant else ()
        return together.struck([*requests, *(fault["request"] for fault in there)])

    def _retry_s(self, lab: Lab) -> float:
        """Wall time after which a NIC sends again what was not acknowledged."""
        return Basis(self.experiment).timeout_ns * lab.dilation / 1e9 if self.experiment.clock.mode == "real" else 0.0

    def _on_line(self, line: dict[str, Any]) -> None:
        line = self.tenant.line(line) if self.tenant else line
        line = self._launcher.line(line) if self._launcher else line
        if line["kind"] == "said":
            self._outputs.take(line)
            return
        self._lines.append(line)
        self.folder.append("measurements.jsonl", line)
        if line["kind"] == "timeline":
            return
        self.progress.advance(done(line, self.steps))
        self.progress.line(line)

    def _on_text(self, rank: int, text: str) -> None:
        with (self.folder.logs / f"rank{rank}.log").open("a") as log:
            log.write(text + "\n")

    def _on_event(self, event: dict[str, Any]) -> None:
        if self._launcher and self._launcher.event(event) and self._agent is not None:
            self._launcher.end(self._agent.lab, self._workers)
            self._watch.take_events()
        if event["event"] == "act" and self._agent is not None:
            self._agent.act(event)
        if event.get("fault") == LAUNCHER:
            return
        event = self.tenant.event(event) if self.tenant else event
        self._events.append(event)
        self.folder.append("events.jsonl", event)
        if note := noteworthy(event):
            self.progress.note(note)

    def _capture(self, lab: Lab) -> list[str]:
        """Starts the captures that the experiment asks for; returns their files."""
        ports = dict.fromkeys(p for t in self.experiment.capture for p in capture_ports(t, lab.fabric))
        if ports:
            (self.folder.path / "captures").mkdir()
        files = {port: str(self.folder.path / "captures" / f"{port.replace(':', '-')}.pcapng") for port in ports}
        for port, path in files.items():
            lab.fabricd.request("capture", port=port, path=path)
        if self.tenant:
            self.tenant.captures = list(files.values())
        return list(files.values())

    def _sample(self, lab: Lab) -> None:
        """Has fabricd write time series, if the experiment asks for them."""
        if (period := self.experiment.measure.sample) is None:
            return
        places = lab.fabricd.request("sample", path=str(self.folder.path / SAMPLES), period_ns=period)
        began = {"began_ns": self.tenant.began_ns if self.tenant else 0}
        self.folder.write_json(PLACES, {key: places[key] for key in ("ports", "switches", "nics")} | began)
        self.folder.write_json("thresholds.json", {"ecn": marking(self.experiment)})

    def _settle(self, lab: Lab, captures: Sequence[str]) -> None:
        """All workers are done: lets the fabric run empty, and takes the counters."""
        self.progress.stage("reading the counters")
        if self.experiment.clock.mode == "virtual":
            lab.fabricd.request("quiesce")
        self.counters = without(self._counted(lab.counters()))
        for path in captures:
            lab.fabricd.request("capture_stop", path=path)
        if self.experiment.measure.sample is not None:
            lab.fabricd.request("sample_stop")
        self.settled = True

    def _keep_logs(self, lab: Lab) -> None:
        for log in (*lab.dir.glob("*.log"), *lab.dir.glob("ovs/*.log")):
            with suppress(OSError):
                shutil.copy(log, self.folder.logs)
        self._controller_messages = (self.tenant or lab).controller_messages()

    def _judge(self, steal: float | None) -> Fidelity:
        verdict = judged(self.experiment, self.counters.get("fidelity", {}), steal)
        if any(e["event"] == "controller_died" for e in self._events):
            verdict.reasons.append(CONTROLLER_DIED)
        for event in self._events:
            silent(verdict, event)
        for said in self._controller_messages:
            if "error" in said:
                verdict.worsen("doubtful", f"a controller application failed: {said.get('where', '')}: {said['error']}")
            if "note" in said:
                verdict.worsen("doubtful", said["note"], "let it answer events: docs/controller-apps.md")
        return verdict

    # -- after it is measured

    def write_frames(self) -> None:
        """Writes what was measured as frames. What goes wrong, `store` raises: here the fabric is on its way down."""
        try:
            about = [step.about for step in self.plan.steps]
            self._measured = measured.write(
                self.folder, self.experiment, self.steps, about, self._lines, self.counters, self._events, self._outputs
            )
        except Exception as error:
            self._unwritten = error

    def store(self, code: int) -> RunResult:
        """Turns what there is into frames, a summary and a report. Raises RunFailed if the run failed."""
        if self.profile.on:
            self.folder.write_json(FILE, self.profile.to_dict())
        if self._measured is None and self._unwritten is None:
            self.write_frames()
        if self._measured is None:
            assert self._unwritten is not None
            raise self._unwritten
        ranks, results, timeline = self._measured.ranks, self._measured.results, self._measured.timeline
        self.problem = self.problem or wrong_results(results)
        self.folder.write_json("fidelity.json", self.fidelity.to_dict())
        found = step_times(timeline)
        whole = going_on(self.steps, found, self._events)
        result = RunResult(
            folder=self.folder.final,
            clock=self.experiment.clock.mode,
            fidelity=self.fidelity,
            results=results,
            counters=counter_totals(self.counters),
            metrics_sha256=metrics_sha256(results, ranks, self.counters, timeline),
            stopped=self.stopped,
            steps=[self._step_row(one) for one in found],
            shares=[one.row() for one in shares(results)],
            scaled=[{"step": number, **its.row()} for number, its in all_scaled(self.steps, found)],
            checkpoints=[{"step": number, **its.row()} for number, its in accounts(self.steps, found)],
            going_on=whole.row() if whole else None,
            experiment=self.resolved,
            live=self.live,
        )
        if not self.problem:
            self.folder.write_json("summary.json", result.to_dict())
        self.folder.write_text("report.md", self._report(result, self._measured.tables))
        if self.problem:
            failed = RunFailed if code == RUN_FAILED and not self.stopped else RunInterrupted
            code = self.stopped if code == RUN_FAILED and self.stopped else code
            raise failed(self.problem, self.folder.fail(self.problem.to_dict()), len(results), code)
        result.folder = self.folder.complete()
        return result

    def _step_row(self, one: StepTime) -> Row:
        about = self.steps[one.step]
        return one.row(about.get("tokens"), about.get("ideal_ns")) | served(one, about)

    def _report(self, result: RunResult, tables: Mapping[str, list[Row]]) -> str:
        return report(
            name=self.experiment.name,
            error=self.problem.to_dict() if self.problem else None,
            clock=result.clock,
            fidelity=self.fidelity.to_dict(),
            results=result.results,
            tables=tables,
            events=self._events,
            hops=self.counters.get("fidelity", {}),
            environment=self.environment,
            metrics_sha256=result.metrics_sha256,
            live=self.live,
            about=self.steps,
        )
