"""A progress bar on stderr: how much is done, how fast, and how long it will take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dse.cli.session import Session


@contextmanager
def progress_bar(
    session: Session, what: str, total: int | None
) -> Iterator[Callable[[int, int | None], None]]:
    """A bar of `what` (a plural); the yielded function takes (done so far, total or None).

    Silent with `-q`, and where stderr is no terminal: there it would be one line per redraw.
    """
    if session.verbosity < 0 or not session.err.is_terminal:
        yield _say_nothing
        return
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text(f"{speed:,.0f} {what}/s" if speed else "")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        Rate(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=session.err, transient=True) as bar:
        task = bar.add_task(what, total=total)

        def update(done: int, known: int | None = None) -> None:
            bar.update(task, completed=done, total=known if known is not None else total)

        yield update


def _say_nothing(done: int, total: int | None = None) -> None:
    pass
