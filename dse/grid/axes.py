"""What-if axes: the paths that they change in a study, and the study at each of their values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dse.errors import Fault, SpecError
from dse.spec.document import Document, from_data
from dse.spec.grid import factor_of, text_of
from dse.spec.load import Override, load_document
from dse.spec.study import Study

# Axes that the study itself has: a path of them sets the study's own list.
LISTS: Final = ("model", "hardware", "mode")
_INDEX: Final = re.compile(r"\[(\d{1,6})\]")


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One axis: the path of what it changes and its values as written."""

    path: str
    values: tuple[Any, ...]

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(map(text_of, self.values))


def own_lists(axes: Mapping[str, Sequence[Any]]) -> list[Override]:
    """Overrides for the axes that are lists of the study: models, targets, the space's axes."""
    found = []
    for path, values in axes.items():
        if is_own(path):
            inside = f"space.{path}" if path == "mode" else path
            found.append((inside, f"[{', '.join(map(text_of, values))}]"))
    return found


def is_own(path: str) -> bool:
    """Whether a path is a list of the study itself."""
    return path in LISTS or path.startswith("space.")


def what_ifs(axes: Mapping[str, Sequence[Any]]) -> tuple[WhatIf, ...]:
    """The axes that are not lists of the study."""
    return tuple(WhatIf(path, tuple(vs)) for path, vs in axes.items() if not is_own(path))


class Studies:
    """A study with the values of its what-if axes."""

    def __init__(self, study: Study, axes: Sequence[WhatIf]) -> None:
        self.axes = tuple(axes)
        self.data = study.model_copy(update={"grid": None}).resolved()
        self.document = Document(from_data(self.data))

    def at(self, digits: Sequence[int]) -> Study:
        """The study at one combination. Raises SpecError that names the axes at fault."""
        overrides: list[Override] = []
        for axis, digit in zip(self.axes, digits, strict=True):
            overrides += self._overrides(axis.path, axis.values[digit])
        try:
            return load_document(Study, self.document, overrides).spec
        except SpecError as error:
            raise self._of_axes(error, digits) from None

    def numbers(self, axis: int) -> tuple[float, ...] | None:
        """Values of an axis in SI (factors as they are); None where they are not all numbers."""
        found = []
        for digit, value in enumerate(self.axes[axis].values):
            factor = factor_of(value)
            if factor is None:
                digits = [0] * len(self.axes)
                digits[axis] = digit
                data = self.at(digits).resolved()
                steps = next(iter(_expanded(data, self.axes[axis].path)), "")
                number = _number(_value_at(data, steps))
                if number is None:
                    return None
                factor = number
            found.append(factor)
        return tuple(found)

    def _overrides(self, path: str, value: Any) -> Iterator[Override]:
        factor = factor_of(value)
        paths = list(_expanded(self.data, path))
        for one in paths:
            if factor is None:
                yield one, text_of(value)
                continue
            number = _number(_value_at(self.data, one))
            if number is None:
                message = f"{value} is a factor, and no number stands there to be multiplied"
                raise SpecError([Fault("--axis", None, None, path, message)])
            yield f"{one}.value" if _is_sourced(self.data, one) else one, f"{number * factor:.17g}"

    def _of_axes(self, error: SpecError, digits: Sequence[int]) -> SpecError:
        """The faults as faults of the axes, with the values of this combination."""
        values = ", ".join(
            f"{axis.path}={axis.labels[digit]}"
            for axis, digit in zip(self.axes, digits, strict=True)
        )
        faults = [replace(fault, file=f"--axis {values}") for fault in error.faults]
        return SpecError(faults)


def _expanded(data: Any, path: str) -> Iterator[str]:
    """The paths that one path means: through a list by a name in it, or through all of it."""
    return _walk(data, [step for step in _INDEX.sub(r".\1", path).split(".") if step], "")


def _walk(here: Any, steps: list[str], done: str) -> Iterator[str]:
    if not steps:
        yield done
        return
    step, rest = steps[0], steps[1:]
    if isinstance(here, list):
        if step.isdigit() and int(step) < len(here):
            yield from _walk(here[int(step)], rest, f"{done}[{step}]")
            return
        names = [one.get("name") if isinstance(one, Mapping) else None for one in here]
        if step in names:
            place = names.index(step)
            yield from _walk(here[place], rest, f"{done}[{place}]")
            return
        if here and all(isinstance(one, Mapping) for one in here):
            for place, one in enumerate(here):
                yield from _walk(one, steps, f"{done}[{place}]")
            return
    below = here.get(step) if isinstance(here, Mapping) else None
    yield from _walk(below, rest, f"{done}.{step}" if done else step)


def _value_at(data: Any, path: str) -> Any:
    for step in [step for step in _INDEX.sub(r".\1", path).split(".") if step]:
        if isinstance(data, list) and step.isdigit() and int(step) < len(data):
            data = data[int(step)]
        elif isinstance(data, Mapping):
            data = data.get(step)
        else:
            return None
    return data


def _is_sourced(data: Any, path: str) -> bool:
    found = _value_at(data, path)
    return isinstance(found, Mapping) and "value" in found


def _number(found: Any) -> float | None:
    if isinstance(found, Mapping) and set(found) & {"value", "mean"}:
        found = found.get("value", found.get("mean"))
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return float(found)
