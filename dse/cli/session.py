"""What every sub-command shares: how much to say, where it goes, and in which form."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

# Without a terminal rich would assume 80 columns and cut tables that go to a file or a pipe.
_COLUMNS_WITHOUT_TERMINAL = 160


@dataclass(frozen=True)
class Session:
    """One run of one sub-command. Results go to standard output, everything else to stderr."""

    json: bool = False
    verbosity: int = 0  # -1 quiet, 0 normal, 1 verbose, 2 and more: everything
    debug: bool = False

    @cached_property
    def out(self) -> Console:
        """Where a result for people goes."""
        return _console(sys.stdout)

    @cached_property
    def err(self) -> Console:
        """Where progress and logs go."""
        return _console(sys.stderr)

    def emit(self, document: Mapping[str, Any], render: Callable[[Console], None]) -> None:
        """Print a result once: the document with `--json`, else what `render` draws for people."""
        if self.json:
            self.print_json(document)
        else:
            render(self.out)

    def print_json(self, document: Mapping[str, Any]) -> None:
        from dse.cli.json_output import dumps

        sys.stdout.write(dumps(document) + "\n")

    def note(self, message: str) -> None:
        """A line for the person watching; silent with `-q`."""
        if self.verbosity >= 0:
            self.err.print(message)

    def start_logging(self) -> None:
        """Send the package's log records to stderr at the level asked for."""
        levels = {-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO}
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
        logger = logging.getLogger("dse")
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(levels.get(min(self.verbosity, 2), logging.DEBUG))


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    chosen = stream.isatty() or "COLUMNS" in os.environ
    # Names and descriptions come from files: brackets in them are text, not markup.
    return Console(
        file=stream,
        width=None if chosen else _COLUMNS_WITHOUT_TERMINAL,
        markup=False,
        highlight=False,
        emoji=False,
    )
