"""Running a grid: launches over all devices, merged, checkpointed, and resumed where they ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from dse.errors import DseError
from dse.grid import checkpoint
from dse.grid.held import Held
from dse.grid.plan import leaves_of
from dse.grid.prepared import Grid
from dse.grid.program import NearestMisses, launch_whole
from dse.grid.store import Store, need_parquet
from dse.report.atomic import require_writable
from dse.search.sharded import Machine, launch, shares

# How long a launch and the time between checkpoints should last.
LAUNCH_S: Final = 2.0
CHECKPOINT_S: Final = 3.0
_MOST_BLOCKS: Final = 1 << 15
# Designs of a device in one launch: counts of them must fit into 32 bits.
_MOST_DESIGNS: Final = 1 << 30

Progress = Callable[[int, int], None]  # designs done, designs in all


@dataclass(frozen=True)
class Outcome:
    """What a grid's parts hold, and how it went."""

    held: tuple[Held, ...]
    files: tuple[tuple[str, str, int], ...]
    interrupted: bool
    priced: int  # designs of this run, those of a checkpoint not counted
    wall_s: float


def price(
    grid: Grid, machine: Machine, out: Path | None = None, progress: Progress | None = None
) -> Outcome:
    """Price every design, from the checkpoint on that `out` holds.

    Raises CheckpointError for a damaged or foreign checkpoint and WriteError where `out` cannot be
    written; what was finished before is kept then.
    """
    if grid.spec.full:
        need_parquet()
        if out is None:
            raise DseError("the full grid needs a folder to write to; give --out DIR")
    return _Run(grid, machine, out, progress).outcome()


class _Run:
    def __init__(
        self, grid: Grid, machine: Machine, out: Path | None, progress: Progress | None
    ) -> None:
        self.grid, self.machine, self.progress = grid, machine, progress
        self.out = out if machine.writes else None
        self.plans = grid.whole.plans
        self.held = [Held.empty(plan) for plan in self.plans]
        self.files: list[Any] = []
        self.store = Store(out, grid.whole, grid.numbers) if out is not None else None
        self.priced, self.saved_at = 0, time.perf_counter()
        self.rate = 0.0  # blocks/s of a device

    def outcome(self) -> Outcome:
        started = time.perf_counter()
        interrupted = False
        self._resume(self._read())
        try:
            for number in range(len(self.plans)):
                step = self._whole_file if self.grid.spec.full else self._launched
                self._run(number, self.held[number].next_block, step, self._absorb)
            # Which design comes nearest is asked, and priced, where none is feasible.
            feasible = any(held.found.feasible for held in self.held)
            if not self.machine.agreed(float(feasible)):
                for number in range(len(self.plans)):
                    first = self.held[number].next_missed
                    self._run(number, first, self._missed, self._absorb_missed)
        except KeyboardInterrupt:
            interrupted = True
        self._save()
        if not interrupted and self.out is not None and self._counted() != self.grid.whole.size:
            counted = f"it counts {self._counted():,} of {self.grid.whole.size:,} designs"
            raise checkpoint.damaged(self.out, counted)
        wall_s = time.perf_counter() - started
        files = tuple((str(n), str(s), int(k)) for n, s, k in self.files)
        return Outcome(tuple(self.held), files, interrupted, self.priced, wall_s)

    def _read(self) -> Any:
        """The state of the first process' checkpoint; other processes learn where it ends."""
        state, failure = None, None
        if self.out is not None:
            try:
                require_writable(self.out)
                state = self._state(checkpoint.read(self.out, self.grid.fingerprint))
                if state is not None and self.store is not None:
                    self.store.check(state[1])
            except DseError as error:
                failure = error
        if self.machine.agreed(float(failure is not None)):
            raise failure or DseError("the first process cannot go on; it says why")
        return state

    def _state(self, kept: Any) -> tuple[list[Held], Any] | None:
        """(what the parts hold, files) of a checkpoint. Raises CheckpointError."""
        if kept is None or self.out is None:
            return None
        try:
            pairs = zip(kept["parts"], self.plans, strict=True)
            return [Held.from_json(data, plan) for data, plan in pairs], kept["files"]
        except (KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
            raise checkpoint.damaged(self.out, f"its state is none of a grid's: {error}") from error

    def _resume(self, state: tuple[list[Held], Any] | None) -> None:
        if state is not None:
            self.held, self.files = state
        if self.machine.n_processes > 1:
            self.held = [
                replace(
                    one,
                    next_block=self._agreed(one.next_block),
                    next_missed=self._agreed(one.next_missed),
                )
                for one in self.held
            ]

    def _agreed(self, block: int) -> int:
        """The first process' block, which a float32 may not hold."""
        high, low = (self.machine.agreed(float(n)) for n in divmod(block, 1 << 16))
        return (int(high) << 16) + int(low)

    def _save(self) -> None:
        if self.out is not None:
            state = {"parts": [held.to_json() for held in self.held], "files": self.files}
            checkpoint.write(self.out, self.grid.fingerprint, state)
        self.saved_at = time.perf_counter()

    def _run(
        self, number: int, first: int, step: Callable[..., Any], absorb: Callable[..., None]
    ) -> None:
        """The blocks of a part from `first` on, a launch after the other."""
        plan = self.plans[number]
        if first >= plan.n_blocks:
            return
        leaves = self.machine.placed(leaves_of(self.grid.whole.parts[number]))
        self.rate = 0.0
        pending: list[tuple[int, int, Any]] = []  # (first block, end, what is running)
        began = time.perf_counter()
        while pending or first < plan.n_blocks:
            # One launch runs while the one before is merged.
            while len(pending) < 2 and first < plan.n_blocks:
                end = min(first + self._n_blocks(number), plan.n_blocks)
                pending.append((first, end, self._begun(step, leaves, number, first, end)))
                first = end
                if self.rate == 0.0:
                    break  # the first one compiles, and says how fast the others will be
            begin, end, running = pending.pop(0)
            absorb(number, begin, end, self.machine.fetched(running))
            if time.perf_counter() - self.saved_at >= CHECKPOINT_S:
                self._save()
            self._report()
            now = time.perf_counter()
            self._pace(plan, begin, end, now - began)
            began = now

    def _begun(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """A launch; the first one in a thread of its own, since compilers do not hear Ctrl-C."""
        if self.rate > 0.0:
            return step(*arguments)
        pool = ThreadPoolExecutor(1)
        try:
            return pool.submit(step, *arguments).result()
        finally:
            pool.shutdown(wait=False)

    def _pace(self, plan: Any, begin: int, end: int, seconds: float) -> None:
        """How many blocks a device prices in a second; the first launch, which compiles, tells
        little."""
        blocks = (end - begin) / self.machine.n_devices
        self.rate = self.machine.agreed(blocks / max(seconds, 1e-6))

    def _n_blocks(self, number: int) -> int:
        """Blocks of the next launch."""
        if self.grid.spec.full:
            assert self.store is not None
            return self.store.blocks_per_file(number)
        own = int(self.rate * LAUNCH_S)
        most = max(_MOST_DESIGNS // self.plans[number].block_size, 1)
        return max(min(own, most, _MOST_BLOCKS), 1) * self.machine.n_devices

    def _launched(self, leaves: Any, number: int, first: int, end: int) -> Any:
        firsts, counts = shares(first, end, self.machine.n_devices)
        spread = map(self.machine.spread, (firsts, counts))
        return launch(leaves, *spread, blocks=self.plans[number], mesh=self.machine.mesh)

    def _missed(self, leaves: Any, number: int, first: int, end: int) -> Any:
        spread = map(self.machine.spread, shares(first, end, self.machine.n_devices))
        blocks = NearestMisses(self.plans[number])
        return launch(leaves, *spread, blocks=blocks, mesh=self.machine.mesh)

    def _whole_file(self, leaves: Any, number: int, first: int, end: int) -> Any:
        n_devices = self.machine.n_devices
        firsts, counts = shares(first, end, n_devices)
        most = -(-self._n_blocks(number) // n_devices)
        spread = map(self.machine.spread, (firsts, counts))
        return launch_whole(
            leaves, *spread, plan=self.plans[number], mesh=self.machine.mesh, n_blocks=most
        )

    def _absorb(self, number: int, begin: int, end: int, fetched: Any) -> None:
        state, columns = fetched if self.grid.spec.full else (fetched, None)
        before = self.held[number]
        places = self.grid.whole.places[number]
        after = before.with_launch(state, places, end)
        if columns is not None and self.out is not None and self.store is not None:
            whole = _in_order(columns, begin, end, self.machine.n_devices)
            self.files.append(self.store.write(number, begin, whole))
        self.held[number] = after
        self.priced += after.found.evaluated - before.found.evaluated

    def _absorb_missed(self, number: int, begin: int, end: int, fetched: Any) -> None:
        places = self.grid.whole.places[number]
        self.held[number] = self.held[number].with_misses(fetched, places, end)

    def _report(self) -> None:
        if self.progress is not None:
            self.progress(self._counted(), self.grid.whole.size)

    def _counted(self) -> int:
        return sum(held.found.evaluated for held in self.held)


def _in_order(
    columns: Mapping[str, np.ndarray], begin: int, end: int, n_devices: int
) -> dict[str, np.ndarray]:
    """Columns [devices * blocks, n] without the blocks that no device had to price."""
    _, counts = shares(begin, end, n_devices)
    found = {}
    for name, values in columns.items():
        by_device = np.asarray(values).reshape(n_devices, -1, np.shape(values)[-1])
        own = [rows[:count] for rows, count in zip(by_device, counts, strict=True)]
        found[name] = np.concatenate(own)
    return found
