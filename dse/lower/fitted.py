"""The engine of a study and the kernels that were fitted to it, for each of its targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dse.lower.laws import Laws
from dse.spec.choice import NO_KERNELS
from dse.spec.engine import EngineSpec, load_engine
from dse.spec.hardware import Hardware
from dse.spec.kernels import KernelFile, load_kernels, read_kernels
from dse.spec.load import Loaded
from dse.spec.study import Study

Kernels = Mapping[str, Loaded[KernelFile] | None]


def engine_of(study: Study) -> EngineSpec:
    """The study's engine with its own parameters."""
    return load_engine(_engine_name(study.engine.name), study.engine.parameters)


def _engine_name(written: str) -> str:
    """`vllm@0.11` is priced with the parameters of `vllm`."""
    return written if "/" in written else written.partition("@")[0]


def fitted_kernels(study: Study, engine: EngineSpec) -> Kernels:
    """Target -> fitted kernels of the study's engine: its own file's, or the catalogue's.

    A file holds for the target that it names.
    """
    chips = {chip.name for target in study.targets() for chip in (target.prefill, target.decode)}
    own = study.engine.kernels
    if own == NO_KERNELS:
        return dict.fromkeys(chips)
    if own is None:
        return {name: load_kernels(name, engine.name) for name in sorted(chips)}
    found = read_kernels(own)
    return {name: found if found.spec.target == name else None for name in sorted(chips)}


def catalogue_laws(engine: str, hardware: Hardware) -> Laws:
    """The laws of an engine of the catalogue on a target, with the catalogue's fitted kernels."""
    spec = load_engine(engine)
    found = load_kernels(hardware.name, spec.name)
    return Laws.of(spec, hardware.vendor, (), found.spec if found is not None else None)


def laws_of(study: Study, engine: EngineSpec, kernels: Kernels) -> dict[str, Laws]:
    """Target -> its laws."""
    out = {}
    for target in study.targets():
        for chip in (target.prefill, target.decode):
            found = kernels[chip.name]
            fitted = found.spec if found is not None else None
            out[chip.name] = Laws.of(engine, chip.vendor, study.engine.parameters, fitted)
    return out


def kernel_warnings(study: Study, kernels: Kernels) -> Iterator[str]:
    """What a person should know of the kernels that were asked for and those that were found."""
    version = "" if "/" in study.engine.name else study.engine.name.partition("@")[2]
    own = study.engine.kernels
    for name, found in kernels.items():
        if found is None and own not in (None, NO_KERNELS):
            of = read_kernels(str(own)).spec.target
            yield f"{own} has kernels of {of}: those of {name} run on priors"
        if found is not None and version and version != found.spec.version:
            yield (
                f"kernels of {found.spec.engine} on {name} were measured in version "
                f"{found.spec.version}, not {version}"
            )
