"""Options that several sub-commands take, each written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from dse.errors import SpecError


def whole(low: int, high: int) -> Callable[[str], int]:
    """A parser of a whole number whose fault names what was found and what is allowed."""

    def parse(text: str) -> int:
        from pydantic_core import PydanticCustomError

        from dse.spec.quantity import Whole

        try:
            return Whole(low, high).parse(text)
        except PydanticCustomError as error:
            raise typer.BadParameter(error.message()) from None

    return parse


def share(low: float, high: float) -> Callable[[str], float]:
    """A parser of a number from `low` to `high`, likewise."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise typer.BadParameter(
                f"found {text!r:.80}; expected a number from {low:g} to {high:g}"
            )
        return value

    return parse


StudyName = Annotated[
    str,
    typer.Argument(metavar="STUDY", help="A study's name or file.", show_default=False),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document."),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Only errors on stderr."),
]
Verbose = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        metavar="",
        help="Say more; -vv says everything.",
        show_default=False,
    ),
]
Debug = Annotated[
    bool,
    typer.Option("--debug", help="Show tracebacks."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Override a value of the file, such as space.max_batch=8; repeatable.",
        show_default=False,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        parser=whole(0, 2**32 - 1),
        metavar="N",
        help="Seed of every random choice.",
        show_default=False,
    ),
]


def parse_overrides(overrides: list[str] | None) -> list[tuple[str, str]]:
    """`["a.b=1"]` to `[("a.b", "1")]`; the value keeps any further `=`."""
    pairs = []
    for text in overrides or []:
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            raise SpecError.of(f"{text!r} is not PATH=VALUE", file="--set")
        pairs.append((path.strip(), value.strip()))
    return pairs
