"""The accuracy page: `python -m dse.report.accuracy ROWS.csv --out docs/accuracy.md`.

Every number on it is computed from the rows that are given; the words around them say what the rows
are and what noise and other tools reach on them. Engines are fitted anew, and each row is predicted
by fits that have not seen it.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dse.calibrate.coverage import coverage
from dse.calibrate.engine.refitted import refit, unseen_predictions
from dse.calibrate.errors import errors, errors_by
from dse.calibrate.predict import Prediction, laws_before_fit, predict
from dse.calibrate.ranking import ranking
from dse.calibrate.rows import Row, read_rows
from dse.report.atomic import write_text

# What a fit has seen, and the split of the rows by which that is arranged.
SEEN: Final[Mapping[str, str | None]] = {
    "no measurement": None,
    "other models or targets": "unseen model and hardware",
    "other configurations": "unseen configuration",
    "other loads": "other loads",
}
_DETAILED: Final = "other configurations"
_QUANTITIES: Final = {
    "tpot": "TPOT",
    "ttft": "TTFT",
    "output_tokens_per_s": "output tokens/s",
}
_GROUPS: Final[Mapping[str, Callable[[Prediction], str]]] = {
    "engine": lambda p: p.row.engine.partition("@")[0],
    "target": lambda p: p.row.hardware,
    "precision of the weights": lambda p: p.row.weight_precision,
    "model": lambda p: p.row.model,
    "clients": lambda p: _decade(p.row.concurrency),
}
_DECADES: Final = (4, 16, 64, 256)
_BAD_PERCENT: Final = 25.0
_FEWEST: Final = 5
_INTRO: Final = """# How accurate predictions are

Predictions of `dse` against measured deployments, row by row, none by a fit that has seen the
row. An error is |predicted/measured - 1| in percent; the bias is its mean with its sign.
`python -m dse.report.accuracy ROWS.csv --out docs/accuracy.md` writes this page; it fits each
engine anew, to four fifths of the rows at a time.

The rows are the silicon samples of NVIDIA's aiconfigurator-core 0.12.0: closed loops of vLLM,
SGLang and TensorRT-LLM, ten requests a client after two warm-up waves. They say neither the slots
of a replica, nor the chunk, nor the scheduler's receive interval, nor (in most) the number format
of the cache.

**Noise.** The same configuration and version measured twice differs by 0.7 / 4.7 % in TPOT and
3.5 / 9 % in TTFT (median / mean), across versions of an engine by 1.5 / 7 % and 5.5 / 18 %.

**Another tool**, aiconfigurator 0.12.0, on the 71 % of the colocated rows and the fifth of the
disaggregated ones that it answers, is off by 15-31 (mean) and 11-24 % (median) in TPOT, by 41-48
and 40-49 % in TTFT, by 17-26 and 11-26 % in output tokens/s.
"""

_SEEN_WORDS: Final = """
*No measurement*: the engine's constants as they were before any fit, on data-sheet peaks. *Other
models or targets*: no row of this model on this target. *Other configurations*: rows of this model
on this target, none with these lengths, number format and degrees. *Other loads*: the configuration
itself, at other numbers of clients. The last is what a few runs of one's own deployment give.
"""
_DETAILS: Final = f"""
What follows is of fits that have seen {_DETAILED} of the same model and target.
"""


def page(by_seen: Mapping[str, Sequence[Prediction]]) -> str:
    """The whole page, in Markdown, from predictions by what their fits have seen."""
    detailed = by_seen[_DETAILED]
    good = [one for one in detailed if not one.refusal]
    parts = [_INTRO, _overall(by_seen), _DETAILS, _choices(good), _bad(good)]
    parts += [f"## By {name}\n\n{_group_table(good, of)}" for name, of in _GROUPS.items()]
    parts.append(_left_out(detailed))
    return "\n".join(parts)


def by_what_was_seen(rows: Sequence[Row]) -> dict[str, list[Prediction]]:
    """Predictions of all rows, by what the fit behind each has seen.

    Raises DseError where an engine's rows cannot be fitted.
    """
    found: dict[str, list[Prediction]] = {name: [] for name in SEEN}
    by_engine: dict[str, list[Row]] = {}
    for row in rows:
        by_engine.setdefault(row.engine.partition("@")[0], []).append(row)
    for own in by_engine.values():
        fitted = refit(own, "priors")
        for name, split in SEEN.items():
            if split is None:
                found[name] += predict(
                    own,
                    laws_of=lambda r: laws_before_fit(r.engine, r.hardware, r.model, "priors"),
                )
            else:
                found[name] += unseen_predictions(fitted, split, seed=0)
    return found


def _overall(by_seen: Mapping[str, Sequence[Prediction]]) -> str:
    lines = [
        "## All rows\n",
        "| mode | quantity | the fit has seen | rows | mean | median | p90 | bias | Spearman | "
        "within 80 % interval |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for mode in ("colocated", "disaggregated"):
        for key, title in _QUANTITIES.items():
            for seen, predictions in by_seen.items():
                rows = [p for p in predictions if p.row.mode == mode and not p.refusal]
                found, within = errors(rows).get(key), coverage(rows)
                if found is None:
                    continue
                share = f"{within[key]:.0f} %" if key in within else ""
                lines.append(
                    f"| {mode} | {title} | {seen} | {found['n']:,} | {found['mape_percent']:.1f} | "
                    f"{found['median_ape_percent']:.1f} | {found['p90_ape_percent']:.0f} | "
                    f"{found['bias_percent']:+.0f} | {found['spearman']:.3f} | {share} |"
                )
    return "\n".join(lines) + "\n" + _SEEN_WORDS


def _choices(good: Sequence[Prediction]) -> str:
    found = ranking(good)
    return f"""## Choosing by it

Within a workload (model, target, engine, mode, lengths; {found.n_workloads} with four rows and
more) the order of measured output tokens/s per accelerator is predicted with a mean Spearman
correlation of {found.spearman:.3f}. Choosing the row that is predicted to yield most within a TPOT
of 25 ms ({found.n_choices} workloads) breaks the limit in {100 * found.violations:.0f} % of them
and gives up {100 * found.regret:.1f} % of the best measured yield in the others.
"""


def _bad(good: Sequence[Prediction]) -> str:
    """Pairs of model and engine whose mean error of TPOT is large."""
    found = errors_by(good, lambda p: f"{p.row.model} | {_GROUPS['engine'](p)} | {p.row.mode}")
    bad = {
        name: one
        for name, one in found.items()
        if "tpot" in one
        and one["tpot"]["n"] >= _FEWEST
        and one["tpot"]["mape_percent"] >= _BAD_PERCENT
    }
    lines = [
        "## Where it is bad\n",
        f"Models and engines of {_FEWEST} rows and more whose TPOT is off by {_BAD_PERCENT:.0f} % "
        "or more on average:\n",
        "| model | engine | mode | rows | TPOT mean | bias | TTFT mean |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, one in sorted(bad.items(), key=lambda item: -item[1]["tpot"]["mape_percent"]):
        tpot, ttft = one["tpot"], one.get("ttft", {})
        lines.append(
            f"| {name} | {tpot['n']} | {tpot['mape_percent']:.0f} | {tpot['bias_percent']:+.0f} | "
            f"{ttft.get('mape_percent', float('nan')):.0f} |"
        )
    return "\n".join(lines) + "\n"


def _group_table(good: Sequence[Prediction], of: Callable[[Prediction], str]) -> str:
    lines = [
        "| | rows | TPOT mean / median | TTFT mean / median | output tokens/s mean / median |",
        "|---|---|---|---|---|",
    ]
    groups = errors_by(good, of)
    for name in sorted(groups, key=_by_number):
        found = groups[name]
        cells = [_pair(found, key) for key in _QUANTITIES]
        rows = max((one["n"] for one in found.values()), default=0)
        lines.append(f"| {name} | {rows:,} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _pair(found: Mapping[str, Mapping[str, float]], key: str) -> str:
    one = found.get(key)
    return f"{one['mape_percent']:.1f} / {one['median_ape_percent']:.1f}" if one else ""


def _left_out(predictions: Sequence[Prediction]) -> str:
    reasons = Counter(one.refusal for one in predictions if one.refusal)
    lines = [f"## Rows that are not predicted: {sum(reasons.values())} of {len(predictions):,}\n"]
    lines += [f"- {n} x {reason}" for reason, n in reasons.most_common()]
    return "\n".join(lines) + "\n"


def _by_number(name: str) -> tuple[int, str]:
    """Classes of numbers in their order, all else by the alphabet."""
    first = name.removeprefix("above ").partition(" ")[0]
    return (int(first) if first.isdigit() else 0, name)


def _decade(clients: float | None) -> str:
    if clients is None:
        return "not stated"
    for low, high in zip((0, *_DECADES), (*_DECADES, None), strict=True):
        if high is None or clients <= high:
            return f"{low + 1} to {high}" if high else f"above {low}"
    raise AssertionError("unreachable: the last class has no upper end")


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", type=Path, help="measured rows, as `dse validate` reads them")
    parser.add_argument("--out", type=Path, required=True, help="the page, a Markdown file")
    asked: Any = parser.parse_args(arguments)
    found = by_what_was_seen(read_rows(asked.rows))
    write_text(asked.out, page(found))
    print(f"{len(found[_DETAILED]):,} rows, {asked.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
