"""From a request on the command line to one priced design."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dse.cli.design_options import Request, in_terms_of_flags
from dse.errors import DseError, SpecError, did_you_mean

if TYPE_CHECKING:
    from dse.cli.session import Session
    from dse.result import Evaluation
    from dse.spec.study import Study


def evaluated(request: Request) -> Evaluation:
    """The design asked about, priced. Raises DseError."""
    from dse.study import evaluate

    study = study_spec(request)
    searched = searched_axes(study)
    if request.design is None and searched:
        raise DseError(
            f"the study searches {', '.join(searched)}; give one design with --design FILE, or "
            "search with `dse run`"
        )
    return evaluate(study, request.design or {}, target=request.target)


def explained_design(session: Session, request: Request) -> Evaluation:
    """As `evaluated`; of a study with axes left to search, the recommended design."""
    from dse.study import evaluate, run

    study = study_spec(request)
    if request.design is not None or not searched_axes(study):
        return evaluated(request)
    session.note("searching for the design to explain; --design FILE explains a given one")
    result = run(study)
    found = [one for one in result.recommendations if request.target in (None, one.hardware)]
    best = next((one for one in found if one.feasible), found[0])
    return evaluate(study.of_model(best.model), best.design, target=best.hardware)


def study_spec(request: Request) -> Study:
    """The study behind a request. Raises SpecError, in terms of flags where it came from flags."""
    from dse.spec.study import load_study

    try:
        study = load_study(request.source, request.overrides)
    except SpecError as error:
        raise (in_terms_of_flags(error) if request.from_flags else error) from None
    if request.model is not None and request.model in study.model:
        study = study.of_model(request.model)
    names = [target.name for target in study.targets()]
    if request.target is not None and request.target not in names:
        hint = did_you_mean(request.target, names)
        raise DseError(f"--target: found {request.target!r}{hint} Known: {', '.join(names)}")
    return study


def searched_axes(study: Study) -> list[str]:
    """Axes of the study that have more than one value."""
    return [name for name, values in study.space.axes().items() if len(values) > 1]


def reasons_of(evaluation: Evaluation) -> list[str]:
    """Why the design does not count, with the numbers of degrees that do not divide."""
    if evaluation.feasible:
        return []
    from dse.arch import load_model
    from dse.explain.degrees import misfits

    found = misfits(load_model(evaluation.study.model[0]), evaluation.design)
    return list(dict.fromkeys([*evaluation.reasons, *found]))
