"""A command line taken apart by what an engine's version accepts."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dse.errors import DseError, nearest
from dse.export.flags import Accepted

# How a line names its engine, and what stands before its flags.
_STARTS: Final = {
    "vllm": (r"^(\S*/)?vllm serve\b", r"^\S*python\S* -m vllm\.entrypoints\S*"),
    "sglang": (r"^(\S*/)?sglang serve\b", r"^\S*python\S* -m sglang\.launch_server\b"),
}
_ASSIGNMENT: Final = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*=")
_MAX_CHARACTERS: Final = 100_000


@dataclass
class Line:
    """One server's line: flags by their first spelling, and what could not be read."""

    engine: str
    flags: dict[str, Any]  # a word, a list of words, or True for a switch (False: --no-...)
    positional: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)


def split_line(text: str) -> tuple[str, list[str], dict[str, str]]:
    """(engine, words behind the program, environment). Raises DseError for anything else."""
    if len(text) > _MAX_CHARACTERS:
        raise DseError("a command line of more than 100,000 characters")
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    lines = [line for line in lines if not line.lstrip().startswith("#")]
    try:
        words = shlex.split(" ".join(lines))
    except ValueError as error:
        raise DseError(f"not a command line: {error}") from None
    while words and words[-1] == "&":
        words.pop()
    env = {}
    while words and _ASSIGNMENT.match(words[0]):
        key, _, value = words.pop(0).partition("=")
        env[key] = value
    for engine, starts in _STARTS.items():
        for n in (2, 3):
            if any(re.fullmatch(start, " ".join(words[:n])) for start in starts):
                return engine, words[n:], env
    found = " ".join(words[:3])
    raise DseError(
        f"found {found!r:.80}; expected a line that starts with vllm serve or python -m "
        "sglang.launch_server"
    )


def lines_of(text: str) -> list[str]:
    """The servers' lines of a script: other commands, comments and `&` are left out."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            split_line(line)
        except DseError:
            continue
        found.append(line.strip())
    return found


def read_words(engine: str, words: Sequence[str], known: Accepted, *, abbreviates: bool) -> Line:
    """Flags and their values. Unknown ones are listed with the nearest, and skipped."""
    line = Line(engine, {})
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not word.startswith("-") or _is_number(word):
            line.positional.append(word)
            continue
        name, equals, glued = word.partition("=")
        name = _spelled(name, known, abbreviates)
        base, _, key = name.partition(".")
        if base not in known:
            line.unknown.append(_unknown(name, known))
            while index < len(words) and not words[index].startswith("-"):
                index += 1
            continue
        first, kind = known.flags[base]
        taken: list[str] = [glued] if equals else []
        if kind != "switch" and not equals:
            most = 1 if kind == "value" else len(words)
            while index < len(words) and len(taken) < most and not _is_flag(words[index], known):
                taken.append(words[index])
                index += 1
        if kind == "switch":
            line.flags[first] = not base.startswith("--no-")
        elif not taken:
            raise DseError(f"{base}: has no value")
        elif key:
            line.flags[first] = _nested(line.flags.get(first), key, taken[0])
        else:
            line.flags[first] = taken[0] if kind == "value" else taken
    return line


def as_object(flag: str, value: Any) -> dict[str, Any]:
    """A flag's JSON object. Raises DseError."""
    if isinstance(value, Mapping):
        return dict(value)
    try:
        found = json.loads(str(value))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise DseError(f"{flag}: found {value!r:.80}; expected a JSON object")
    return found


def whole_number(flag: str, value: Any, low: int = 1) -> int:
    """A flag's whole number; 8k and 8K are 8000 and 8192, as vLLM reads them. Raises DseError."""
    text = str(value).strip()
    scale = {"k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2}.get(text[-1:], 1)
    digits = text[:-1] if scale > 1 else text
    try:
        number = int(digits) * scale
    except ValueError:
        number = low - 1
    if not low <= number <= 2**31:
        raise DseError(f"{flag}: found {value!r:.40}; expected a whole number from {low}")
    return number


def _spelled(name: str, known: Accepted, abbreviates: bool) -> str:
    """vLLM takes _ for -; argparse takes the beginning of a flag where no other begins so."""
    if name.startswith("--"):
        base, dot, key = name.partition(".")
        name = base.replace("_", "-") + dot + key
        if name.partition(".")[0] not in known and abbreviates:
            firsts = {first for flag, (first, _) in known.flags.items() if flag.startswith(name)}
            if len(firsts) == 1:
                return firsts.pop()
    return name


def _is_flag(word: str, known: Accepted) -> bool:
    return word.startswith("--") or word in known


def _is_number(word: str) -> bool:
    return re.fullmatch(r"-\d+(\.\d+)?", word) is not None


def _nested(old: Any, key: str, text: str) -> dict[str, Any]:
    """`--speculative-config.method mtp` is one key of that flag's object."""
    found = dict(old) if isinstance(old, Mapping) else {}
    try:
        found[key] = json.loads(text)
    except (ValueError, RecursionError):
        found[key] = text
    return found


def _unknown(name: str, known: Accepted) -> str:
    near = nearest(name, [flag for flag in known.flags if flag.startswith("--")])
    return f"{name} (nearest: {', '.join(near)})" if near else name
