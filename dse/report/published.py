"""The page of published results.

`python -m dse.report.published CASES.yaml --out docs/published.md` writes it.

Every number on it is computed from the cases that are given and the files beside them; the words
around them say what the cases are, and what kind of miss the largest ones are.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from dse.calibrate.published.case import read_cases
from dse.calibrate.published.companions import companions_of
from dse.calibrate.published.misses import kind_of_miss
from dse.calibrate.published.predict import Published, predict_published
from dse.calibrate.published.readings import kind_of
from dse.report.atomic import write_text

_WORST: Final = 25
_INTRO: Final = """# Published results, predicted

Numbers that others published about serving systems (benchmark tables, blogs, papers, CI floors),
each translated into a study and priced like any design, with what the catalogue ships. Nothing is
fitted to them, except where the note says so. `python -m dse.report.published CASES.yaml --out
docs/published.md` writes this page; `dse/calibrate/published/` holds the rules that read a case's
words, the names, and what was translated by hand.

Sources say little of a setup: batch limits, chunks, caches, the spread of experts. What they leave
open is written in the last column as what was assumed, never filled in by value. A ratio is
predicted over published; an error is |ratio - 1|. Quality A is a result file or first-party table
with its setup, B a statement or a CI floor (which real runs exceed by a few percent).
"""


def page(found: Sequence[Published]) -> str:
    """The whole page, in Markdown."""
    good = [one for one in found if not one.refusal]
    parts = [_INTRO, _summary(found, good), _worst(good)]
    for family in dict.fromkeys(_family(one) for one in good):
        own = [one for one in good if _family(one) == family]
        parts.append(f"## {family}\n\n{_table(own)}")
    parts.append(_refused(found))
    return "\n".join(parts)


def _family(one: Published) -> str:
    """The source without its file and revision."""
    name = re.split(r"[@,]| docs/| README| closed/| tests?/| blog/", one.case.source)[0]
    return name.strip().strip('"')


def _summary(found: Sequence[Published], good: Sequence[Published]) -> str:
    ran = sum(one.refused_by_verdict for one in found)
    text = (
        f"## All cases\n\nOf {len(found)} cases {len(good)} are predicted, "
        f"{len(found) - len(good)} are refused with a reason (last section); {ran} of these "
        "ran, and the product says that they do not fit.\n\n"
    )
    return text + "\n".join(
        _errors(name, good, of)
        for name, of in (
            ("quantity", lambda one: kind_of(one.case.quantity)),
            ("hardware", lambda one: one.case.hardware),
            ("source", _family),
            ("quality", lambda one: one.case.quality),
        )
    )


def _errors(name: str, good: Sequence[Published], of: Callable[[Published], str]) -> str:
    lines = [
        f"| by {name} | cases | median ratio | mean error, % | median error, % | within 25 % |",
        "|---|---|---|---|---|---|",
    ]
    groups: dict[str, list[float]] = {}
    for one in good:
        groups.setdefault(of(one), []).append(one.ratio)
    for group in sorted(groups):
        ratios = np.asarray(groups[group])
        off = 100.0 * np.abs(ratios - 1.0)
        lines.append(
            f"| {group} | {len(ratios)} | {np.median(ratios):.2f} | {np.mean(off):.0f} | "
            f"{np.median(off):.0f} | {100.0 * np.mean(off <= 25.0):.0f} % |"
        )
    return "\n".join(lines) + "\n"


def _worst(good: Sequence[Published]) -> str:
    ordered = sorted(good, key=lambda one: -abs(np.log(one.ratio)))[:_WORST]
    lines = [
        "## The largest misses\n",
        "| case | published | predicted | ratio | kind of miss |",
        "|---|---|---|---|---|",
    ]
    for one in ordered:
        cells = (one.case.id, *_values(one), kind_of_miss(one.case))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _table(own: Sequence[Published]) -> str:
    lines = [
        "| case | hardware | quantity | published | predicted | ratio | quality; assumed |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in own:
        case = one.case
        note = "; ".join((case.quality, *one.assumed))
        lines.append(
            f"| {' | '.join((case.id, case.hardware, case.quantity, *_values(one), note))} |"
        )
    return "\n".join(lines) + "\n"


def _values(one: Published) -> tuple[str, str, str]:
    """Published, predicted and their ratio."""
    published = f"{_number(one.case.value)} {_unit(one)}"
    return published, _number(one.predicted), f"{one.ratio:.2f}"


def _unit(one: Published) -> str:
    return one.case.unit.partition(" (")[0].partition(":")[0].replace("|", "/")


def _number(value: float | list[float] | None) -> str:
    assert isinstance(value, float)
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.4g}"


def _refused(found: Sequence[Published]) -> str:
    reasons: dict[str, list[Published]] = {}
    for one in found:
        if one.refusal:
            reasons.setdefault(one.refusal, []).append(one)
    count = sum(len(members) for members in reasons.values())
    lines = [f"## Cases that are not predicted: {count} of {len(found)}\n"]
    for verdict in (True, False):
        title = "They ran, and the product says they do not" if verdict else "Not expressible"
        lines.append(f"**{title}:**\n")
        for reason, members in sorted(reasons.items(), key=lambda item: -len(item[1])):
            if members[0].refused_by_verdict is verdict:
                names = ", ".join(one.case.id for one in members)
                lines.append(f"- {len(members)} x {reason}: {names}")
        lines.append("")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", type=Path, help="published cases, a YAML file")
    parser.add_argument("--out", type=Path, required=True, help="the page, a Markdown file")
    asked: Any = parser.parse_args(arguments)
    cases = read_cases(asked.cases)
    found = predict_published(cases, companions_of(asked.cases))
    write_text(asked.out, page(found))
    print(f"{len(found)} cases, {asked.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
