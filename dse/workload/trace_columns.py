"""Which column of a trace is what, by the names that public traces use."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, get_args

from dse.errors import DseError, did_you_mean, nearest, one_of

Role = Literal["arrival", "prompt", "output", "blocks"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)

ALIASES: Final[Mapping[Role, tuple[str, ...]]] = {
    "arrival": (
        "timestamp",
        "timestamps",
        "arrival",
        "arrivals",
        "arrival_time",
        "arrival_timestamp",
        "arrived_at",
        "time",
        "ts",
        "request_time",
        "request_timestamp",
        "start_time",
        "created_at",
    ),
    "prompt": (
        "ContextTokens",
        "input_length",
        "Request tokens",
        "prompt_tokens",
        "input_tokens",
        "prompt_length",
        "prompt_len",
        "input_len",
        "num_prefill_tokens",
        "num_input_tokens",
        "num_prompt_tokens",
        "isl",
        "prompt",
        "input",
    ),
    "output": (
        "GeneratedTokens",
        "output_length",
        "Response tokens",
        "completion_tokens",
        "output_tokens",
        "output_len",
        "completion_length",
        "response_length",
        "num_decode_tokens",
        "num_output_tokens",
        "num_completion_tokens",
        "osl",
        "output",
    ),
    "blocks": ("hash_ids", "block_hashes", "block_ids", "blocks", "prefix_hashes"),
}
# Often the texts themselves: taken for their lengths only where no other column is.
_LAST: Final = ("prompt", "input", "output")
_REQUIRED: Final[tuple[Role, ...]] = ("prompt", "output")
_UNITS: Final = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("ms", "msec", "millis", "milliseconds"), "ms"),
    **dict.fromkeys(("us", "usec", "micros", "microseconds"), "us"),
    **dict.fromkeys(("ns", "nanos", "nanoseconds"), "ns"),
}
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_SHOWN: Final = 30
_SLIP: Final = 0.8


def find_columns(names: Sequence[str], given: Mapping[Role, str]) -> dict[Role, str]:
    """Role -> name of the column; `given` decides, else the aliases (in any case and spelling).

    Raises DseError when prompt or output lengths are missing, when several columns would do, and
    when a name is written twice.
    """
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DseError(f"the header has {one_of([repr(one) for one in twice], 'and')} twice")
    found: dict[Role, str] = {}
    for role in ROLES:
        name = _column(role, names, given)
        if name is not None:
            found[role] = name
    missing = [role for role in _REQUIRED if role not in found]
    if missing:
        raise DseError(_missing(missing, names, found))
    if "arrival" not in found:
        rest = [name for name in names if name not in found.values()]
        close = [name for name in rest if _is_near(_folded(name), _known("arrival"))]
        if close:
            raise DseError(
                f"column {close[0]!r} looks like the arrivals but is no known name for them; "
                f"rename it or say --column arrival={close[0]}. Known: "
                f"{', '.join(ALIASES['arrival'])}"
            )
    return found


def unit_in_name(name: str) -> str | None:
    """`ms` for arrival_ms, timestampMs or `time (ms)`; None where the name tells no unit."""
    words = [word.casefold() for word in _WORDS.findall(name)]
    return _UNITS.get(words[-1]) if len(words) > 1 else None


def _column(role: Role, names: Sequence[str], given: Mapping[Role, str]) -> str | None:
    if role in given:
        name = given[role]
        if name not in names:
            hint = did_you_mean(name, names)
            joint = " Found" if hint else "; found"
            raise DseError(f"no column is named {name!r:.80}{hint}{joint}: {_shown(names)}")
        return name
    known = _known(role)
    fits = [name for name in names if _folded(name) in known and name not in given.values()]
    if len(fits) > 1:
        fits = [name for name in fits if _folded(name) not in _LAST] or fits
    if len(fits) > 1:
        raise DseError(
            f"columns {one_of([repr(one) for one in fits], 'and')} could both be the {role} "
            f"column; say which: --column {role}=NAME"
        )
    return fits[0] if fits else None


def _missing(missing: Sequence[Role], names: Sequence[str], found: Mapping[Role, str]) -> str:
    what = one_of([f"{role} lengths" for role in missing], "and")
    rest = [name for name in names if name not in found.values()]
    said = [f"has no column of {what}; found columns: {_shown(names)}"]
    for role in missing:
        near = [name for name in rest if nearest(name, ALIASES[role])]
        hint = f" ({near[0]!r} looks like it)" if near else ""
        known = ", ".join(ALIASES[role])
        said.append(f"Names for {role}{hint}: {known}; or say --column {role}=NAME")
    return ". ".join(said)


def _is_near(folded: str, known: set[str]) -> bool:
    """Whether a name is a known one but for a slip or two; `type` is not `time`."""
    ratios = (difflib.SequenceMatcher(None, folded[:100], one).ratio() for one in known)
    return max(ratios) > _SLIP


def _known(role: Role) -> set[str]:
    """Folded aliases; arrivals may carry their unit."""
    known = {_folded(name) for name in ALIASES[role]}
    if role == "arrival":
        known |= {stem + unit for stem in known for unit in _UNITS}
    return known


def _folded(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _shown(names: Sequence[str]) -> str:
    listed = ", ".join(repr(name)[:60] for name in names[:_SHOWN])
    return listed + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
