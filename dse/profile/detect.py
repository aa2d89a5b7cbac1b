"""Which profiler wrote a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from dse.errors import SpecError
from dse.profile import ascend, nsight, torch_trace
from dse.profile.call import Profile
from dse.profile.source import read_text, what_is_there

_READERS: Final[tuple[Callable[[str, str], Profile | None], ...]] = (
    torch_trace.read,
    ascend.read,
    nsight.read_trace,
    nsight.read_sum,
    nsight.read_ncu,
)
_FORMATS: Final = {
    "kernel_details": ascend.MARKS,
    "cuda_gpu_trace": nsight.TRACE_MARKS,
    "cuda_gpu_kern_sum": nsight.SUM_MARKS,
    "ncu": nsight.NCU_MARKS,
}
_KNOWN: Final = (
    "Ascend's kernel_details.csv or op_summary_*.csv, CSV of nsys stats (cuda_gpu_trace, "
    "cuda_gpu_kern_sum) or of ncu, or a Chrome trace of torch.profiler"
)


def read_profile(path: str | os.PathLike[str]) -> Profile:
    """The kernels of a profiler's export, told by its header.

    Raises SpecError for what is none, with what was found, and for every faulty cell (at most 20)
    with line and column.
    """
    text, file = read_text(path), f"{os.fspath(path):.300}"
    for read in _READERS:
        found = read(text, file)
        if found is not None:
            return _checked(found)
    there = what_is_there(text, _FORMATS)
    joint = " Expected" if there.endswith("?") else "; expected"
    raise SpecError.of(f"{there}{joint} {_KNOWN}", file=file)


def _checked(profile: Profile) -> Profile:
    """Each launch once, without those of no duration; SpecError where nothing is left.

    Exports that were joined hold launches twice: one kernel starts once at an instant.
    """
    lasting = [call for call in profile.calls if call.time_s > 0.0]
    if not lasting:
        raise SpecError.of(f"{profile.tool}: holds no kernel that took time", file=profile.file)
    seen: set[tuple[object, ...]] = set()
    calls = []
    for call in lasting:
        key = (call.name, call.start_s, call.device, call.time_s)
        if call.start_s is None or key not in seen:
            calls.append(call)
            seen.add(key)
    notes = list(profile.notes)
    for n, what in (
        (len(profile.calls) - len(lasting), "kernels of no duration are left out"),
        (len(lasting) - len(calls), "copies of rows count once"),
    ):
        if n:
            notes.append(f"{n} {what}")
    return replace(profile, calls=tuple(calls), notes=tuple(notes))
