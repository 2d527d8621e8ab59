"""Streams and events of an emulated GPU, in the place of those that torch has for a CPU (which do nothing)."""

from __future__ import annotations

from itertools import count
from typing import Any

import torch

from workloads.torch.recorder import Recorder
from workloads.torch.recorder import Stream as Recorded


def install(recorder: Recorder) -> None:
    """From now on `torch.cpu` and `torch.accelerator` know the recorder's streams."""
    numbers = count(1)

    class Stream:
        def __init__(self, *args: Any, recorded: Recorded | None = None, **kwargs: Any) -> None:
            self.recorded = recorded or recorder.stream(f"stream {next(numbers)}")

        def wait_stream(self, other: Stream) -> None:
            self.recorded.waits |= recorder.close(other.recorded)

        def record_event(self, event: Event | None = None) -> Event:
            event = event or Event()
            event.record(self)
            return event

        def wait_event(self, event: Event | None) -> None:
            if event is not None:
                self.recorded.waits |= event.rows

        def synchronize(self) -> None:
            recorder.host_waits(recorder.close(self.recorded))

        def query(self) -> bool:
            return True

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Stream) and other.recorded is self.recorded

        def __hash__(self) -> int:
            return id(self.recorded)

        def __enter__(self) -> Stream:
            self._context = StreamContext(self)
            self._context.__enter__()
            return self

        def __exit__(self, *error: object) -> None:
            self._context.__exit__(*error)

    class Event:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.rows: frozenset[int] = frozenset()

        def record(self, stream: Stream | None = None) -> Event:
            self.rows = recorder.close(stream.recorded if stream else recorder.current)
            return self

        def wait(self, stream: Stream | None = None) -> None:
            (stream.recorded if stream else recorder.current).waits |= self.rows

        def synchronize(self) -> None:
            recorder.host_waits(self.rows)

        def query(self) -> bool:
            return True

    class StreamContext:
        def __init__(self, stream: Stream | None) -> None:
            self.stream = stream

        def __enter__(self) -> None:
            self.before = recorder.current
            if self.stream is not None:
                recorder.current = self.stream.recorded

        def __exit__(self, *error: object) -> None:
            recorder.current = self.before

    def current_stream(device: Any = None) -> Stream:
        return Stream(recorded=recorder.current)

    def synchronize(device: Any = None) -> None:
        for stream in list(recorder.streams.values()):
            recorder.host_waits(recorder.close(stream))

    for name, value in {
        **{"Stream": Stream, "Event": Event, "StreamContext": StreamContext, "stream": StreamContext},
        **{"current_stream": current_stream, "synchronize": synchronize},
    }.items():
        setattr(torch.cpu, name, value)
    torch.accelerator.current_stream = current_stream
    torch.accelerator.synchronize = synchronize
