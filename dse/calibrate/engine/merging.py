"""Levels that were fitted apart, one vendor at a time, as one file of an engine."""

from __future__ import annotations

from collections.abc import Sequence

from dse import catalog
from dse.errors import DseError
from dse.spec.deployments import DeploymentFile, Level, Subject
from dse.spec.hardware import Hardware
from dse.spec.kernels import load_kernels
from dse.spec.load import load


def merged(files: Sequence[DeploymentFile]) -> DeploymentFile:
    """All levels of the files, in their order; each keeps its source in its vendor's level.

    What a file was fitted on (`base`) is that of the first. Raises DseError where engines differ,
    where two files have a subject in common, and where a later file was fitted on another base for
    chips whose kernels the catalogue has: for others both bases are the same.
    """
    first = files[0]
    seen: set[Subject] = set()
    for file in files:
        if file.engine != first.engine:
            raise DseError(f"found files of {first.engine} and {file.engine}; expected one engine")
        if file.base != first.base:
            _require_no_kernels(file)
        twice = [level.of for level in file.levels if level.of in seen]
        if twice:
            raise DseError(f"two files have levels of {_words(twice[0])}")
        seen |= {level.of for level in file.levels}
    return DeploymentFile(
        engine=first.engine,
        date=max(file.date for file in files),
        description=first.description,
        source="; ".join(dict.fromkeys(file.source for file in files)),
        base=first.base,
        n_rows=sum(file.n_rows for file in files),
        levels=tuple(_noted(level, file) for file in files for level in file.levels),
    )


def _noted(level: Level, file: DeploymentFile) -> Level:
    """A vendor's outermost level says which rows it was fitted to."""
    if level.note or level.of != Subject(vendor=level.of.vendor):
        return level
    return level.model_copy(update={"note": file.source})


def _words(of: Subject) -> str:
    return " ".join(map(str, of.model_dump(exclude_none=True).values())) or "any deployment"


def _require_no_kernels(file: DeploymentFile) -> None:
    vendors = {level.of.vendor for level in file.levels}
    for name in catalog.names("hardware"):
        chip = load(Hardware, catalog.resolve("hardware", name)).spec
        fits = None in vendors or chip.vendor in vendors
        if fits and load_kernels(chip.name, file.engine) is not None:
            raise DseError(
                f"levels of {chip.vendor} were fitted on {file.base}, those of the first file "
                f"were not, and the catalogue has kernels of {chip.name}"
            )
