"""Options of the sub-commands that read a trace, and what they say about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from dse.cli.options import whole
from dse.errors import DseError, did_you_mean

if TYPE_CHECKING:
    from dse.workload.trace_columns import Role

TimeUnit = Annotated[
    Literal["s", "ms", "us", "ns"] | None,
    typer.Option("--time-unit", help="Unit of arrivals in plain numbers.", show_default=False),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="ROLE=NAME",
        help="Which column is the arrival, prompt, output or blocks; repeatable.",
        show_default=False,
    ),
]
BlockTokens = Annotated[
    int | None,
    typer.Option(
        "--block-tokens",
        parser=whole(1, 2**31 - 1),
        metavar="N",
        help="Tokens per block.",
        show_default=False,
    ),
]


def roles_of(texts: Sequence[str] | None) -> dict[Role, str]:
    """`["prompt=n_in"]` to `{"prompt": "n_in"}`. Raises DseError for anything else."""
    from dse.workload.trace_columns import Role

    known: tuple[Role, ...] = get_args(Role)
    given: dict[Role, str] = {}
    for text in texts or ():
        word, equals, column = text.partition("=")
        role = next((one for one in known if one == word.strip()), None)
        if role is None or not equals or not column:
            hint = did_you_mean(word, known)
            raise DseError(
                f"--column: found {text!r:.80}{hint or '.'} Expected ROLE=NAME with a role of "
                f"{', '.join(known)}"
            )
        given[role] = column
    return given
