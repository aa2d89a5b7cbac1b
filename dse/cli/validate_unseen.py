"""`dse validate --refit`: each row predicted by a fit of its engine that has not seen it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dse.cli.session import Session
from dse.errors import DseError, did_you_mean, one_of

if TYPE_CHECKING:
    from dse.calibrate.predict import Prediction
    from dse.calibrate.rows import Row


def validate_unseen(
    session: Session,
    rows: Path,
    predictions: Path | None,
    by: list[str],
    out: Path | None,
    split: str,
    seeds: Sequence[int],
) -> None:
    """Rows dealt to folds once for every seed; errors are of all deals together.

    Raises DseError for an unknown split, and where an engine's rows cannot be fitted.
    """
    from dse.calibrate.document import GROUPS
    from dse.calibrate.engine.fit import n_pricings
    from dse.calibrate.engine.held_out import SPLITS
    from dse.calibrate.engine.held_out import n_pricings as n_held_out
    from dse.calibrate.rows import read_rows
    from dse.cli.cache import use_compilation_cache
    from dse.cli.progress import progress_bar
    from dse.cli.validate import group_named, report_means

    if split not in SPLITS:
        hint = did_you_mean(split, SPLITS)
        raise DseError(f"--refit: found {split!r}{hint}; allowed: {one_of(list(SPLITS))}")
    groups = [group_named(name, list(GROUPS)) for name in by]
    measured = read_rows(rows)
    use_compilation_cache()
    total = len(measured) * (n_pricings() + len(seeds) * n_held_out())
    done = 0
    with progress_bar(session, "rows priced", total) as show:

        def more(n: int) -> None:
            nonlocal done
            done += n
            show(min(done, total), None)

        found = _of_every_engine(measured, split, seeds, more)
    report_means(
        session, found, groups, predictions, out, refit={"split": split, "seeds": list(seeds)}
    )


def _of_every_engine(
    rows: Sequence[Row], split: str, seeds: Sequence[int], progress: Callable[[int], None]
) -> list[Prediction]:
    from dse.calibrate.engine.refitted import refit, unseen_predictions

    by_engine: dict[str, list[Row]] = {}
    for row in rows:
        by_engine.setdefault(row.engine.partition("@")[0], []).append(row)
    found: list[Prediction] = []
    for name, own in by_engine.items():
        try:
            of = refit(own, "priors", progress)
        except DseError as error:
            raise DseError(f"rows of {name}: {error}") from None
        for seed in seeds:
            found += unseen_predictions(of, split, seed, progress)
    return found
