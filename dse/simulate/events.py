"""Playing requests through stations: one heap of events in the order of time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import numpy as np

from dse.errors import DseError
from dse.simulate.channel import Channel
from dse.simulate.job import Job
from dse.simulate.meter import Meter
from dse.simulate.record import Record
from dse.simulate.replica import Replica
from dse.simulate.routing import Router, Routing
from dse.simulate.station import Station
from dse.simulate.stream import Stream
from dse.workload.requests import Requests

Progress = Callable[[int, int], None]

# At one instant requests arrive before steps end, and steps end before new ones begin.
_ARRIVE, _END, _LAND, _WAKE = 0, 1, 2, 3
_PROGRESS_EVERY = 256
_EVENTS_PER_REQUEST, _EVENTS_AT_LEAST = 2_000, 5_000_000


@dataclass(frozen=True, slots=True)
class Line:
    """A deployment to play: one station, or a prefill station, a channel and a decode station."""

    main: Station
    front: Station | None = None
    channel: Channel | None = None
    holds_first_token: bool = False
    ttft_base_s: float = 0.0
    ttft_s_per_prompt_token: float = 0.0
    ttft_fixed_s: float = 0.0  # steps that a prefill pool's scheduler loses
    moves_prefix_frac: float = 0.0  # 1: what a prefill worker found in its cache travels too


@dataclass(frozen=True, slots=True)
class Play:
    """How a line is played.

    `clients` requests are in flight at any time (a closed loop, whatever the arrival times say);
    None plays the arrivals. Measured are requests `first` to `last` (not included).
    """

    routing: Routing = "least_loaded"
    clients: int | None = None
    first: int = 0
    last: int = 0


class Player:
    """The state of one simulation; `run` plays it to the end."""

    def __init__(
        self, line: Line, requests: Requests, steps: Any, play: Play, progress: Progress | None
    ) -> None:
        self.line, self.requests, self.play, self.progress = line, requests, play, progress
        self.isl: list[int] = requests.isl.tolist()
        self.osl: list[int] = requests.osl.tolist()
        self.steps: list[int] = np.asarray(steps).tolist()
        self.record = Record(len(self.isl))
        self.meter, self.front_meter = Meter(), Meter()
        self.replicas = self._replicas(line.main, self.meter)
        self.fronts = self._replicas(line.front, self.front_meter) if line.front else []
        self.router, self.front_router = Router(play.routing), Router(play.routing)
        self.heap: list[tuple[float, int, int, Any, Any, int]] = []
        self.serial = 0
        self.events_left = _EVENTS_AT_LEAST + _EVENTS_PER_REQUEST * len(self.isl)
        self.upcoming: list[int] = [i for i, one in enumerate(self._playable()) if one]
        self.position = 0  # in `upcoming`
        self.done = 0

    def run(self) -> Record:
        """Plays all requests. Raises DseError where events without end show that nothing moves."""
        heap = self.heap
        self._start()
        handlers = (self._arrive, self._end, self._land, self._wake)
        while heap:
            now, kind, _, one, other, version = heappop(heap)
            handlers[kind](now, one, other, version)
            self.events_left -= 1
            if self.events_left < 0:
                raise DseError(
                    f"the simulation does not come to an end: {self.done} of {len(self.upcoming)} "
                    f"requests finished by {now:.3g} s"
                )
        self._close(self.record.now_s)
        return self.record

    def _replicas(self, station: Station, meter: Meter) -> list[Replica]:
        found = []
        for index in range(station.replicas):
            replica = Replica(index, station, meter)
            replica.begun, replica.finished = self._begun, self._finished
            replica.prompt_done = self._prompt_done
            found.append(replica)
        return found

    def _playable(self) -> list[bool]:
        """Requests that fit into the memory of an empty rank; the others are refused."""
        stations = [self.line.main] + ([self.line.front] if self.line.front else [])
        return [
            all(
                one.memory.holds(isl + (osl + 1 if one.role != "prefill" else 0))
                for one in stations
            )
            for isl, osl in zip(self.isl, self.osl, strict=True)
        ]

    def _start(self) -> None:
        if self.play.first <= 0:
            self._open(0.0)
        if self.play.clients is None:
            self._next_arrival(0.0)
            return
        for _ in range(min(self.play.clients, len(self.upcoming))):
            self._next_arrival(0.0)

    def _next_arrival(self, now: float) -> None:
        """Schedules the next request: at its own time, or now in a closed loop."""
        if self.position >= len(self.upcoming):
            return
        index = self.upcoming[self.position]
        self.position += 1
        at = now if self.play.clients is not None else float(self.requests.arrival_s[index])
        self._push(at, _ARRIVE, index)

    def _push(self, at: float, kind: int, one: Any, other: Any = None, version: int = 0) -> None:
        self.serial += 1
        heappush(self.heap, (at, kind, self.serial, one, other, version))

    def _arrive(self, now: float, index: int, _: Any, __: int) -> None:
        if index >= self.play.first and not self.meter.is_open and not self.record.closed:
            self._open(now)
        self.record.arrived(index, now)
        if self.play.clients is None:
            self._next_arrival(now)
        isl, osl = self.isl[index], self.osl[index]
        job = Job(index, now, isl, osl, self.steps[index])
        if self.requests.blocks is not None:
            job.blocks = self.requests.blocks[index].tolist()
        job.lost_s = self.line.ttft_base_s + self.line.ttft_s_per_prompt_token * isl
        self._submit(job, now, self.fronts or self.replicas, self.front_router)
        if index >= self.play.last - 1 and not self.record.closed:
            self._close(now)

    def _submit(self, job: Job, now: float, replicas: list[Replica], router: Router) -> None:
        job.replica = router.choose(replicas)
        replica = replicas[job.replica]
        replica.submit(job, now)
        self._wake_at(now, replica)

    def _wake_at(self, at: float, replica: Replica) -> None:
        if replica.wake_at_s != at:
            replica.wake_at_s = at
            self._push(at, _WAKE, replica)

    def _begun(self, replica: Replica, stream: Stream, ends_s: float) -> None:
        self._push(ends_s, _END, replica, stream, stream.version)

    def _end(self, now: float, replica: Replica, stream: Stream, version: int) -> None:
        if version == stream.version:
            replica.end(stream, now)
            self._stir(now, replica)

    def _wake(self, now: float, replica: Replica, _: Any, __: int) -> None:
        if replica.wake_at_s == now:
            replica.wake_at_s = math.nan
        self._stir(now, replica)

    def _stir(self, now: float, replica: Replica) -> None:
        later = replica.wake(now)
        if later is not None:
            self._wake_at(later, replica)

    def _prompt_done(self, job: Job, now: float) -> None:
        """A prefill worker has finished a prompt: its cache travels."""
        line = self.line
        assert line.channel is not None
        job.lost_s += line.ttft_fixed_s
        self.record.front_replica[job.index] = job.replica
        if job.osl == 1 or not line.holds_first_token:
            job.first_s = job.emitted_s = now
        if job.osl == 1:
            job.replica = -1  # it never decodes
            self._finished(job, now)
            return
        new = job.need - job.hit
        moved = new + line.moves_prefix_frac * job.hit
        station = line.front
        assert station is not None
        chunks = max(new / station.chunk_tokens, 1.0)
        self._push(line.channel.send(now, moved, job.prompt_s, chunks), _LAND, job)

    def _land(self, now: float, job: Job, _: Any, __: int) -> None:
        """The cache has arrived: the request may decode."""
        job.blocks = None
        if self.line.holds_first_token:
            job.steps += 1  # the first token comes out of the first step
            job.rate = job.osl / job.steps
        self._submit(job, now, self.replicas, self.router)

    def _finished(self, job: Job, now: float) -> None:
        self.record.finished(job, now)
        self.done += 1
        if self.meter.is_open:
            self.record.finished_in_window += 1
        if self.progress is not None and self.done % _PROGRESS_EVERY == 0:
            self.progress(self.done, len(self.upcoming))
        if self.play.clients is not None:
            self._next_arrival(now + job.lost_s)

    def _open(self, now: float) -> None:
        self.meter.is_open = self.front_meter.is_open = True
        self.record.open(now)

    def _close(self, now: float) -> None:
        if not self.record.closed:
            self.meter.is_open = self.front_meter.is_open = False
            self.record.close(now)
