"""The engine of a study, and what was fitted to its kernels and to its deployments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dse.arch.types import ModelArch
from dse.lower.deployed import deployed_laws
from dse.lower.laws import Laws
from dse.spec.choice import NONE
from dse.spec.deployments import DeploymentFile, load_deployments, read_deployments
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
    if own == NONE:
        return dict.fromkeys(chips)
    if own is None:
        return {name: load_kernels(name, engine.name) for name in sorted(chips)}
    found = read_kernels(own)
    return {name: found if found.spec.target == name else None for name in sorted(chips)}


def fitted_deployments(study: Study, engine: EngineSpec) -> Loaded[DeploymentFile] | None:
    """What measured deployments say of the study's engine: its own file, or the catalogue's."""
    own = study.engine.deployments
    if own == NONE:
        return None
    return load_deployments(engine.name) if own is None else read_deployments(own)


def catalogue_laws(engine: EngineSpec, hardware: Hardware, arch: ModelArch) -> Laws:
    """The laws of an engine for a model on a target, with all that the catalogue has fitted."""
    kernels, deployments = load_kernels(hardware.name, engine.name), load_deployments(engine.name)
    return deployed_laws(
        engine,
        hardware,
        arch,
        kernels=kernels.spec if kernels is not None else None,
        deployments=deployments.spec if deployments is not None else None,
    )


def laws_of(
    study: Study,
    engine: EngineSpec,
    arch: ModelArch,
    kernels: Kernels,
    deployments: Loaded[DeploymentFile] | None,
) -> dict[str, Laws]:
    """Target -> its laws."""
    out = {}
    for target in study.targets():
        for chip in (target.prefill, target.decode):
            found = kernels[chip.name]
            out[chip.name] = deployed_laws(
                engine,
                chip,
                arch,
                given=study.engine.parameters,
                kernels=found.spec if found is not None else None,
                deployments=deployments.spec if deployments is not None else None,
            )
    return out


def deployment_warnings(
    study: Study, engine: EngineSpec, deployments: Loaded[DeploymentFile] | None
) -> Iterator[str]:
    """That a file is of another engine than the study's."""
    if deployments is not None and deployments.spec.engine != engine.name:
        yield (
            f"{study.engine.deployments} was fitted to {deployments.spec.engine}, the study's "
            f"engine is {engine.name}"
        )


def kernel_warnings(study: Study, kernels: Kernels) -> Iterator[str]:
    """What a person should know of the kernels that were asked for and those that were found."""
    version = "" if "/" in study.engine.name else study.engine.name.partition("@")[2]
    own = study.engine.kernels
    for name, found in kernels.items():
        if found is None and own not in (None, NONE):
            of = read_kernels(str(own)).spec.target
            yield f"{own} has kernels of {of}: those of {name} run on priors"
        if found is not None and version and version != found.spec.version:
            yield (
                f"kernels of {found.spec.engine} on {name} were measured in version "
                f"{found.spec.version}, not {version}"
            )
