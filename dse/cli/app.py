"""The `dse` command: finds a sub-command, loads it, runs it.

A sub-command is a function in a module of its own, named in `COMMANDS`. Its first parameter is the
`Session`; the others are typer parameters; it returns an exit code or None. The common options are
added here. Modules of sub-commands import what is heavy inside the function.
"""

from __future__ import annotations

import gc
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any, Final, NoReturn

import typer

from dse import __version__
from dse.cli import options
from dse.cli.outcome import INTERRUPTED, give_up_output, guard, reader_left
from dse.cli.session import Session

# Name -> (module, function); the order is the order of the help.
COMMANDS: Final = {
    "run": ("dse.cli.run", "run"),
    "grid": ("dse.cli.grid", "grid"),
    "eval": ("dse.cli.eval", "evaluate"),
    "explain": ("dse.cli.explain", "explain"),
    "sensitivity": ("dse.cli.sensitivity", "sensitivity"),
    "simulate": ("dse.cli.simulate", "simulate"),
    "validate": ("dse.cli.validate", "validate"),
    "rows": ("dse.cli.rows", "rows"),
    "profile": ("dse.cli.profile", "profile"),
    "workload": ("dse.cli.workload", "workload"),
    "list": ("dse.cli.list", "list_names"),
    "show": ("dse.cli.show", "show"),
    "check": ("dse.cli.check", "check"),
    "schema": ("dse.cli.schema", "schema"),
    "doctor": ("dse.cli.doctor", "doctor"),
}

# Name -> module with a `COMMANDS` of its own: a command with sub-commands.
GROUPS: Final = {"calibrate": "dse.cli.calibrate"}

SubCommand = Callable[..., int | None]

_COMMON: Final = {
    "json": (options.Json, False),
    "quiet": (options.Quiet, False),
    "verbose": (options.Verbose, 0),
    "debug": (options.Debug, False),
}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit; this is what the `dse` program calls."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _keep_odd_characters()
    # Tracing makes a million small objects that all stay: looking for cycles among them takes a
    # third of its time.
    gc.set_threshold(200_000, 50, 100)
    try:
        build(given)(given, prog_name="dse")
        code: Any = 0
    except SystemExit as done:
        piped = isinstance(done.__context__, BrokenPipeError)
        code = reader_left() if piped else done.code
    except KeyboardInterrupt:  # before a sub-command has begun
        code = INTERRUPTED
    try:
        sys.stdout.flush()
    except OSError:
        give_up_output()
    if code == INTERRUPTED and "jax" in sys.modules:
        # Compiled work may still run in threads of its own; Python must not tear down under it.
        sys.stderr.flush()
        os._exit(INTERRUPTED)
    sys.exit(code)


def build(arguments: Sequence[str] = ()) -> typer.Typer:
    """The typer application, with only the sub-command that the arguments name, if they do."""
    app = typer.Typer(
        name="dse",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    wanted = arguments[0] if arguments else ""
    known = {**COMMANDS, **GROUPS}
    for name in [wanted] if wanted in known else known:
        if name in GROUPS:
            app.add_typer(_group(GROUPS[name]), name=name)
            continue
        module, function = COMMANDS[name]
        app.command(name)(with_common_options(getattr(import_module(module), function)))
    return app


def _group(module: str) -> typer.Typer:
    """A command with sub-commands of its own: `HELP` is its line in the help."""
    found = import_module(module)
    group = typer.Typer(help=found.HELP, no_args_is_help=True, rich_markup_mode=None)
    group.callback()(_nothing)
    for name, (place, function) in found.COMMANDS.items():
        group.command(name)(with_common_options(getattr(import_module(place), function)))
    return group


def _nothing() -> None:
    """Typer keeps a lone sub-command's name only where there is a callback."""


def with_common_options(function: SubCommand) -> Callable[..., None]:
    """The function as typer sees it: without its Session, with the options that all take."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

    def run(**values: Any) -> None:
        common = {name: values.pop(name) for name in _COMMON}
        session = Session(
            json=common["json"],
            verbosity=-1 if common["quiet"] else common["verbose"],
            debug=common["debug"],
        )
        session.start_logging()
        raise typer.Exit(guard(session, lambda: function(session, **values)))

    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in _COMMON.items()
    ]
    own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    run.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *shared]}
    run.__name__ = function.__name__
    run.__doc__ = function.__doc__
    return run


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"dse {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Find how to serve a large language model: the best deployment, and why."""


def _keep_odd_characters() -> None:
    """A terminal that cannot show a character gets its escape, not a crash."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
