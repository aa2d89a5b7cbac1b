"""The base of every block that a person writes: strict keys, and all faults at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from dse.errors import Fault, did_you_mean

Location = tuple[str | int, ...]

_MAX_LISTED = 20

FAULT = "dse_fault"
"""Error type of a message that says everything itself; `ctx["at"]` extends its location."""
ELSEWHERE = "dse_elsewhere"
"""Error type that carries the faults of another file in `ctx["faults"]`."""


def fault(message: str, at: Location = ()) -> PydanticCustomError:
    """A validator's error whose message is complete: what was found, what is allowed."""
    return PydanticCustomError(FAULT, message, {"at": at})


def faults_elsewhere(faults: Iterable[Fault]) -> PydanticCustomError:
    """A validator's error for a file that this one refers to and that has faults of its own."""
    return PydanticCustomError(ELSEWHERE, "a file it refers to is faulty", {"faults": [*faults]})


class Spec(BaseModel):
    """A block of YAML: unknown keys are faults, values never change after validation.

    A subclass states what no single field can check in `key_faults` (on the keys as written, so
    that it is reported beside the fields' own faults) and `cross_faults` (on valid values).
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        str_strip_whitespace=True,
        hide_input_in_errors=True,
    )

    @classmethod
    def key_faults(cls, data: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
        """Faults that the written keys alone show: exclusive or missing alternatives."""
        yield from ()

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        """Faults that need several valid values."""
        yield from ()

    @model_validator(mode="wrap")
    @classmethod
    def _report_all(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        found: list[InitErrorDetails] = []
        if isinstance(data, Mapping):
            found = [_details(at, text, data) for at, text in cls.key_faults(data)]
        try:
            model = handler(data)
        except ValidationError as error:
            if not found:
                raise
            raise _joined(cls.__name__, error, found) from None
        found += [_details(at, text, data) for at, text in model.cross_faults()]
        if found:
            raise ValidationError.from_exception_data(cls.__name__, found)
        return model


def exclusive(data: Mapping[str, Any], *keys: str) -> list[str]:
    """Which of the keys are written (a null counts as absent)."""
    return [key for key in keys if data.get(key) is not None]


def unknown_key(key: str, allowed: Iterable[str]) -> str:
    """The message for a key that a block does not have."""
    names = list(allowed)
    hint = did_you_mean(key, names)
    joint = " Allowed" if hint else "; allowed"
    return f"unknown key {key!r:.80}{hint}{joint}: {_listed(names, hint)}"


def unknown_name(what: str, name: str, allowed: Iterable[str], more: str = "") -> str:
    """The message for a name that is not among the allowed ones."""
    names = list(allowed)
    hint = did_you_mean(name, names)
    listed = more or f"allowed: {_listed(names, hint)}"
    joint = f" {listed[0].upper()}{listed[1:]}" if hint else f"; {listed}"
    return f"unknown {what} {name!r:.80}{hint}{joint}"


def _listed(names: list[str], hint: str) -> str:
    """All names; where a near one has been found, a long list is cut."""
    shown = names if not hint or len(names) <= _MAX_LISTED else names[:_MAX_LISTED]
    rest = f" and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
    return ", ".join(shown) + rest


def folder_of(context: object) -> Path:
    """Where relative paths of the file being validated start: its folder, or the current one."""
    base = context.get("folder") if isinstance(context, Mapping) else None
    return base if isinstance(base, Path) else Path.cwd()


def _details(at: Location, message: str, data: Any) -> InitErrorDetails:
    return InitErrorDetails(type=PydanticCustomError(FAULT, message), loc=at, input=data)


def _joined(title: str, error: ValidationError, more: list[InitErrorDetails]) -> ValidationError:
    """One error with the fields' faults and ours; pydantic cannot add to an error it raised."""
    own = [
        InitErrorDetails(
            type=PydanticCustomError(one["type"], one["msg"], one.get("ctx", {})),
            loc=one["loc"],
            input=one["input"],
        )
        for one in error.errors()
    ]
    return ValidationError.from_exception_data(title, [*own, *more])
