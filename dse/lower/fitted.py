"""The engine of a study, and what was fitted to its kernels and to its deployments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dse.arch.types import ModelArch
from dse.lower.deployed import deployed_laws
from dse.lower.laws import Laws
from dse.spec.choice import CATALOGUE, NONE
from dse.spec.deployments import Base, DeploymentFile, load_deployments, read_deployments
from dse.spec.engine import EngineSpec, load_engine
from dse.spec.hardware import Hardware
from dse.spec.kernels import KernelFile, kernels_for, read_kernels
from dse.spec.load import Loaded
from dse.spec.study import Study


def engine_of(study: Study) -> EngineSpec:
    """The study's engine with its own parameters."""
    return load_engine(_engine_name(study.engine.name), study.engine.parameters)


def _engine_name(written: str) -> str:
    """`vllm@0.11` is priced with the parameters of `vllm`."""
    return written if "/" in written else written.partition("@")[0]


@dataclass(frozen=True)
class Fitted:
    """What was fitted to a study's engine: kernels by target, and deployments."""

    kernels: Mapping[str, Loaded[KernelFile] | None]
    deployments: Loaded[DeploymentFile] | None

    @property
    def files(self) -> tuple[Loaded[KernelFile] | Loaded[DeploymentFile], ...]:
        """All files that were read."""
        found = (*self.kernels.values(), self.deployments)
        return tuple(one for one in found if one is not None)


def fitted_to(study: Study, engine: EngineSpec) -> Fitted:
    """The study's own files, or the catalogue's.

    A fit of deployments holds on what it was made on. Where the study states no kernels, the fit
    decides whether the catalogue's are used; where the study states kernels, or none, a fit that
    was made on something else is left out.
    """
    chips = {
        chip.name: chip for target in study.targets() for chip in (target.prefill, target.decode)
    }
    deployments = _deployments(study, engine)
    own = study.engine.kernels
    if own in (None, CATALOGUE):
        wanted = own == CATALOGUE or _base(engine, deployments) == "kernels"
        kernels = {
            name: kernels_for(chip, engine.name) if wanted else None for name, chip in chips.items()
        }
    elif own == NONE:
        kernels = dict.fromkeys(chips)
    else:
        found = read_kernels(str(own))
        kernels = {name: found if found.spec.target == name else None for name in chips}
    if own is not None and study.engine.deployments is None and deployments is not None:
        base = "priors" if own == NONE else "kernels"
        deployments = deployments if deployments.spec.base == base else None
    return Fitted({name: kernels[name] for name in sorted(kernels)}, deployments)


def _base(engine: EngineSpec, deployments: Loaded[DeploymentFile] | None) -> Base:
    """What an engine is priced on: what its deployments were fitted on, the study's or else the
    catalogue's; kernels where there are neither."""
    of = deployments or load_deployments(engine.name)
    return of.spec.base if of is not None else "kernels"


def _deployments(study: Study, engine: EngineSpec) -> Loaded[DeploymentFile] | None:
    own = study.engine.deployments
    if own == NONE:
        return None
    return load_deployments(engine.name) if own is None else read_deployments(own)


def catalogue_laws(engine: EngineSpec, hardware: Hardware, arch: ModelArch) -> Laws:
    """The laws of an engine for a model on a target, with what the catalogue has fitted."""
    deployments = load_deployments(engine.name)
    kernels = _kernels(engine, hardware, _base(engine, deployments))
    found = deployments.spec if deployments is not None else None
    return deployed_laws(engine, hardware, arch, kernels=kernels, deployments=found)


def undeployed_laws(engine: EngineSpec, hardware: Hardware, arch: ModelArch, base: Base) -> Laws:
    """What a fit of deployments is made on: the engine's priors, or the catalogue's kernels."""
    return deployed_laws(engine, hardware, arch, kernels=_kernels(engine, hardware, base))


def _kernels(engine: EngineSpec, hardware: Hardware, base: Base) -> KernelFile | None:
    found = kernels_for(hardware, engine.name) if base == "kernels" else None
    return found.spec if found is not None else None


def laws_of(study: Study, engine: EngineSpec, arch: ModelArch, fitted: Fitted) -> dict[str, Laws]:
    """Target -> its laws."""
    deployments = fitted.deployments
    out = {}
    for target in study.targets():
        for chip in (target.prefill, target.decode):
            found = fitted.kernels[chip.name]
            out[chip.name] = deployed_laws(
                engine,
                chip,
                arch,
                given=study.engine.parameters,
                kernels=found.spec if found is not None else None,
                deployments=deployments.spec if deployments is not None else None,
            )
    return out


def fit_warnings(study: Study, engine: EngineSpec, fitted: Fitted) -> Iterator[str]:
    """What a person should know of the fits that were asked for and those that were found."""
    yield from _kernel_warnings(study, fitted.kernels)
    deployments, own = fitted.deployments, study.engine.deployments
    if deployments is None or own is None:
        return
    found = deployments.spec
    if found.engine != engine.name:
        yield f"{own} was fitted to {found.engine}; the study's engine is {engine.name}"
    on_kernels = any(one is not None for one in fitted.kernels.values())
    if study.engine.kernels is not None and on_kernels != (found.base == "kernels"):
        used = "fitted kernels" if on_kernels else "priors"
        yield f"{own} was fitted on {found.base}; the study's kernels run on {used}"


def _kernel_warnings(
    study: Study, kernels: Mapping[str, Loaded[KernelFile] | None]
) -> Iterator[str]:
    """What a person should know of the kernels that were asked for and those that were found."""
    version = "" if "/" in study.engine.name else study.engine.name.partition("@")[2]
    own = study.engine.kernels
    for name, found in kernels.items():
        if found is None and own == CATALOGUE:
            yield f"the catalogue has no kernels of {study.engine.name} on {name}: priors stand in"
        if found is None and own not in (None, NONE, CATALOGUE):
            of = read_kernels(str(own)).spec.target
            yield f"{own} has kernels of {of}: those of {name} run on priors"
        if found is not None and own in (None, CATALOGUE) and found.spec.target != name:
            yield f"{name} has no fitted kernels: those of {found.spec.target} stand in"
        if found is not None and version and version != found.spec.version:
            yield (
                f"kernels of {found.spec.engine} on {name} were measured in version "
                f"{found.spec.version}, not {version}"
            )
