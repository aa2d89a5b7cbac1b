"""A replica: ranks that step together, and streams that follow each other through its stages.

With one stage there is one stream, and a run of decode steps is played as one event until someone
finishes, memory ends or a request arrives. With pp stages there are pp streams (micro-batches); a
step of t seconds takes t/pp in each stage, and the stages serve the streams in turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dse.simulate.job import Job
from dse.simulate.law import Decoding, Prompts
from dse.simulate.meter import Meter
from dse.simulate.rank import Rank, prompts_of
from dse.simulate.station import Station
from dse.simulate.stream import Run, Stream

Parts = list[tuple[Job, int]]
Told = Callable[[Job, float], None]


class Replica:
    """One replica of a station.

    `prompt_done` hears of every prompt that a replica without a decode phase has finished,
    `finished` of every last token, `begun` of each run: (replica, stream, seconds it ends at).
    """

    def __init__(self, index: int, station: Station, meter: Meter) -> None:
        self.index, self.station, self.meter = index, station, meter
        self.ranks = [Rank(i, station) for i in range(station.dp)]
        self.streams = [Stream(i, station.dp) for i in range(station.pp)]
        self.free_s = [0.0] * station.pp  # when each stage has done what it was given
        self.load = 0
        self.last = 0  # the stream that began last
        self.wake_at_s = math.nan  # for when it has asked to be woken
        self.prompt_done: Told
        self.finished: Told
        self.begun: Callable[[Replica, Stream, float], None]

    def submit(self, job: Job, now: float) -> None:
        """A request arrives: on the rank with the fewest; it may cut a run of decode steps short.

        The caller wakes the replica afterwards.
        """
        rank = min(self.ranks, key=_load)
        rank.load += 1
        self.load += 1
        rank.waiting.append(job)
        job.rank = rank.index
        for stream in self.streams:
            run = stream.run
            if run is not None and run.steps > 1:
                steps = run.steps_by(now)
                if steps < run.steps:
                    stream.run = run._replace(steps=steps)
                    stream.version += 1
                    self.begun(self, stream, run.began_s + run.lasts_s(steps))

    def wake(self, now: float) -> float | None:
        """Begins what can begin now; a later time to be woken at, where a stage is still busy."""
        streams = self.streams
        for turn in range(len(streams)):
            if now < self.free_s[0]:
                return self.free_s[0]
            stream = streams[(self.last + 1 + turn) % len(streams)]
            if stream.run is None and self._begin(stream, now):
                self.last = stream.index
        return None

    def end(self, stream: Stream, now: float) -> None:
        """A run is over: tokens are out, prompts advance, requests leave."""
        run = stream.run
        assert run is not None
        stream.run = None
        if run.decodes:
            self._count_gaps(stream, run, now)
            stream.advance(run.steps)
            for rank, rate in zip(self.ranks, stream.rate, strict=True):
                if rate:
                    rank.memory.tokens += rate * run.steps
                    rank.memory.settle()
            for job in stream.done():
                job.emitted_s = now
                self._leave(job, stream.part(job, job.rank))
                self.finished(job, now)
        for job in stream.pending:
            stream.join(job, job.rank)
        stream.pending.clear()
        for job, _ in run.parts:
            job.in_flight -= 1
            if job.have >= job.need and not job.in_flight:
                self._prompt_done(job, now)

    def _begin(self, stream: Stream, now: float) -> bool:
        """Gives a stream its next step or run, if it has any."""
        mixes = self.station.mixes_phases
        if mixes and stream.total and not self._make_room(stream) and stream.total:
            return False
        parts, loads = self._collect(stream)
        decodes = stream.total > 0 and (mixes or not parts)
        if decodes and not mixes:
            decodes = self._make_room(stream)
        steps, first_s, more_s = 1, 0.0, 0.0
        if parts:
            first_s = self._prompt_step(stream, loads, decodes)
            for job, _ in parts:
                if job.prefill_began_s < 0.0:
                    job.prefill_began_s = now
        elif decodes:
            steps, first_s, more_s = self._decode_run(stream)
        else:
            return False
        run = Run(now, steps, first_s, more_s, decodes, tuple(parts))
        stream.run = run
        stream.version += 1
        self.begun(self, stream, self._through_stages(now, run.lasts_s(steps)))
        return True

    def _through_stages(self, now: float, seconds: float) -> float:
        """When the last stage is done; every stage takes its share in turn."""
        free = self.free_s
        if len(free) == 1:
            return now + seconds
        share, at = seconds / len(free), now
        for stage, busy_until in enumerate(free):
            at = max(at, busy_until) + share
            free[stage] = at
        return at

    def _collect(self, stream: Stream) -> tuple[Parts, list[Prompts]]:
        """Prompt rows of the stream's next step; nobody new comes in where someone had to go."""
        station = self.station
        counts_decoding = station.mixes_phases and station.budget == "step"
        every: Parts = []
        loads: list[Prompts] = []
        for rank in self.ranks:
            if not rank.waiting and not rank.prefilling:
                continue
            budget = station.chunk_tokens
            if counts_decoding:
                budget -= stream.n[rank.index] * station.rows_each
            parts: Parts = []
            budget = rank.go_on(budget, parts)
            if not rank.was_short:
                for job in rank.admit(budget, parts, self._growth(rank)):
                    self._join(job)
            rank.was_short = False
            if parts:
                loads.append(prompts_of(parts))
                every += parts
        return every, loads

    def _growth(self, rank: Rank) -> float:
        """Tokens that the rank's requests gain when every stream takes a step."""
        index = rank.index
        return sum(stream.rate[index] for stream in self.streams)

    def _make_room(self, stream: Stream) -> bool:
        """Sends the newest requests back to the queue until the others have room for a step.

        False where the stream has to wait for what another has under way.
        """
        for rank in self.ranks:
            grown = self._growth(rank)
            while grown > 0.0 and rank.memory.steps_left(grown) < 1.0 and len(rank.residents) > 1:
                newest = next((job for job in reversed(rank.residents) if _may_stop(job)), None)
                if newest is None:
                    if any(other.run is not None for other in self.streams):
                        return False
                    break
                self._preempt(rank, newest)
                rank.was_short = True
                grown = self._growth(rank)
        return stream.total > 0

    def _preempt(self, rank: Rank, job: Job) -> None:
        held = float(job.need)
        if job.stream is not None:
            held = job.stream.part(job, rank.index)
            # What it has said becomes part of the prompt that is computed again.
            job.need = round(held) + (1 if job.first_s >= 0.0 else 0)
        else:
            rank.prefilling.remove(job)
        rank.leave(job, held)
        job.have = 0
        job.preemptions += 1
        rank.waiting.appendleft(job)

    def _decode_run(self, stream: Stream) -> tuple[int, float, float]:
        """(steps, seconds of the first, growth per step) until something changes."""
        fullest, context, growth = stream.fullest()
        total, law = stream.total, self.station.law
        first_s = law.decode_s(fullest, total, context + growth)
        steps = stream.steps_to_end()
        for rank, rate in zip(self.ranks, stream.rate, strict=True):
            if rate:
                steps = min(steps, int(rank.memory.steps_left(rate) + 1e-9))
        if len(self.streams) > 1:
            steps = min(steps, 1)
        steps = max(min(steps, stream.longest_run(context, growth)), 1)
        if steps == 1:
            return 1, first_s, 0.0
        last_s = law.decode_s(fullest, total, context + growth * steps)
        return steps, first_s, (last_s - first_s) / (steps - 1)

    def _prompt_step(self, stream: Stream, loads: list[Prompts], decodes: bool) -> float:
        """Seconds of a step with prompts; what they add goes to the meter."""
        law, meter = self.station.law, self.meter
        if not decodes:
            seconds = law.prompt_s(loads, None)
            if meter.is_open:
                meter.prompt_steps += 1
                meter.prompt_work_s += seconds / len(self.streams)
            return seconds
        fullest, context, growth = stream.fullest()
        both = Decoding(fullest, stream.total, context + growth)
        seconds = law.prompt_s(loads, both)
        if meter.is_open:
            meter.mixed_steps += 1
            alone = law.decode_s(*both)
            meter.prompt_work_s += max(seconds - alone, 0.0) / len(self.streams)
        return seconds

    def _prompt_done(self, job: Job, now: float) -> None:
        """The step that completed a prompt is over: a token is out."""
        rank = self.ranks[job.rank]
        rank.publish(job)
        job.context = float(job.need)
        if self.station.role == "prefill":
            job.prompt_s = now - job.prefill_began_s
            self._leave(job, job.context)
            self.prompt_done(job, now)
            return
        if job.first_s >= 0.0:  # computed again after a preemption
            self.meter.gap(now - job.emitted_s, 1.0)
            job.steps -= 1
        else:
            job.first_s = now
            if self.station.role == "decode":  # its first token was to come from a step
                job.steps -= 1
            else:
                job.lost_s += self._lost_s(job)
        job.emitted_s = now
        if self.meter.is_open:
            self.meter.tokens += 1.0
        if job.steps > 0:
            self._join(job)
            return
        self._leave(job, job.context)
        self.finished(job, now)

    def _lost_s(self, job: Job) -> float:
        """Steps that the scheduler loses before a first token, at the load of that moment."""
        lost = self.station.lost_steps
        if not lost:
            return 0.0
        total = sum(stream.total for stream in self.streams) // len(self.streams) + 1
        fullest, context = -(-total // self.station.dp), job.context
        busiest = max(self.streams, key=_total)
        if busiest.total:
            _, context, _ = busiest.fullest()
        return lost * self.station.law.decode_s(fullest, total, context)

    def _join(self, job: Job) -> None:
        """A request decodes in the stream that has the fewest of its rank."""
        rank = job.rank
        stream = min(self.streams, key=lambda one: one.n[rank] + len(one.pending))
        if stream.run is None:
            stream.join(job, rank)
        else:
            stream.pending.append(job)

    def _leave(self, job: Job, tokens: float) -> None:
        rank = self.ranks[job.rank]
        rank.leave(job, tokens)
        rank.load -= 1
        self.load -= 1

    def _count_gaps(self, stream: Stream, run: Run, now: float) -> None:
        """Tokens and gaps of a run; who joined since the last step has a first gap of its own."""
        meter = self.meter
        seconds = run.lasts_s(run.steps)
        span = now - run.began_s if len(self.streams) > 1 else seconds
        first_end = run.began_s + (span if run.steps == 1 else run.first_s)
        if meter.is_open:
            settled = stream.total - len(stream.fresh)
            meter.gap(first_end - stream.emitted_s, settled)
            for job in stream.fresh:
                if job.first_s >= 0.0:
                    meter.gap(first_end - job.emitted_s, 1.0)
            if run.steps > 1:
                more = (run.steps - 1) * stream.total
                meter.gap((seconds - run.first_s) / (run.steps - 1), more)
            meter.tokens += run.steps * sum(stream.rate)
            meter.decode_steps += 0 if run.parts else run.steps
        for job in stream.fresh:
            job.emitted_s = first_end
            if job.first_s < 0.0:
                job.first_s = first_end
        stream.fresh.clear()
        stream.emitted_s = now


def _load(rank: Rank) -> int:
    return rank.load


def _total(stream: Stream) -> int:
    return stream.total


def _may_stop(job: Job) -> bool:
    """Whether a request takes part in no step that is under way."""
    if job.stream is not None:
        return job.stream.run is None
    return job.in_flight == 0 and job.have < job.need
