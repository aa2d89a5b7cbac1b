"""From what happened to an exit code and a message: the one place that knows both.

0 fine; 1 a fault of dse; 2 wrong usage or a faulty file; 3 nothing feasible; 4 an accuracy or
golden check failed; 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from dse.errors import DseError

if TYPE_CHECKING:
    from dse.cli.session import Session

FINE = 0
OUR_FAULT = 1
FAULTY_INPUT = 2
NOTHING_FEASIBLE = 3
CHECK_FAILED = 4
INTERRUPTED = 130

_DISK_FAULTS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})


def guard(session: Session, work: Callable[[], int | None]) -> int:
    """Run a sub-command and turn whatever comes of it into an exit code."""
    try:
        code = work() or FINE
        sys.stdout.flush()
        return code
    except (typer.Exit, typer.Abort):
        raise
    except KeyboardInterrupt:
        return _explain(
            session, "interrupted before anything was finished", "interrupted", INTERRUPTED
        )
    except BrokenPipeError:
        return reader_left()
    except OSError as error:
        if error.errno not in _DISK_FAULTS:
            return _our_fault(session, error)
        give_up_output()
        return _explain(session, f"error: cannot write: {error.strerror}", "output", FAULTY_INPUT)
    except DseError as error:
        _traceback(session)
        return _explain(session, f"error: {error}", "input", error.exit_code, _faults(error))
    except Exception as error:
        return _our_fault(session, error)


def reader_left() -> int:
    """The reader of our output is gone (`| head`): it has what it wanted, so this is no failure."""
    give_up_output()
    return FINE


def give_up_output() -> None:
    """Let go what a broken stream still holds: it would raise again when Python closes it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _our_fault(session: Session, error: Exception) -> int:
    _traceback(session)
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    advice = "" if session.debug else "; run with --debug for the traceback"
    return _explain(session, f"this is a fault of dse{advice}\n{what}", "internal", OUR_FAULT)


def _traceback(session: Session) -> None:
    if session.debug:
        traceback.print_exc(file=sys.stderr)


def _faults(error: DseError) -> list[Any]:
    return list(getattr(error, "faults", []))


def _explain(
    session: Session, message: str, kind: str, code: int, faults: list[Any] | None = None
) -> int:
    """Say it on stderr, and to a script as a document on stdout too; the exit code is returned."""
    print(message, file=sys.stderr)
    if session.json:
        body = {"kind": kind, "message": message.removeprefix("error: "), "faults": faults or []}
        try:
            session.print_json({"schema": "dse.error/1", "error": body, "exit_code": code})
            sys.stdout.flush()
        except OSError:
            give_up_output()
    return code
