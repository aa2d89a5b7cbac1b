"""Matching module names against the lists that quantization configs carry.

Entries are literal names or parts of them (`gate`, `model.layers.3.mlp`), globs
(`model.layers.61*`, `*.attn.*`) or, after `re:`, regular expressions. Checkpoints put different
roots before the same module (`model.`, `language_model.model.`, `backbone.`): roots are dropped on
both sides, except for regular expressions, which see the usual full names.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from typing import Final

_ROOT: Final = re.compile(r"^(?:(?:model|language_model|backbone|transformer|llm|text_model)\.)+")
_LONGEST: Final = 500


class ModulePatterns:
    """A compiled list of module patterns.

    Raises `ValueError` for a regular expression that cannot be compiled.
    """

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._literals: set[str] = set()
        globs: list[str] = []
        expressions: list[str] = []
        for entry in entries:
            if len(entry) > _LONGEST:
                raise ValueError(f"a pattern of {len(entry)} characters, at most {_LONGEST}")
            if entry.startswith("re:"):
                expressions.append(_checked(entry[3:]))
            elif any(c in entry for c in "*?["):
                globs.append(_glob(_ROOT.sub("", entry)))
            else:
                self._literals.add(_ROOT.sub("", entry.strip(".")).removesuffix(".weight"))
        self._globs = re.compile("|".join(globs)) if globs else None
        self._expressions = re.compile("|".join(f"(?:{e})" for e in expressions or ["(?!)"]))
        self._has_expressions = bool(expressions)

    def __bool__(self) -> bool:
        return bool(self._literals or self._globs or self._has_expressions)

    def matches(self, name: str) -> bool:
        """Whether an entry names the module, one of its ancestors, or a stretch of its path."""
        if self._literals and self._literal(name):
            return True
        if self._globs is not None and self._globs.match(name):
            return True
        if not self._has_expressions:
            return False
        roots = ("", "model.", "model.language_model.", "language_model.model.")
        return any(self._expressions.match(root + name) for root in roots)

    def _literal(self, name: str) -> bool:
        parts = name.split(".")
        n = len(parts)
        return any(
            (i == 0 or parts[i] != "layers") and ".".join(parts[i:j]) in self._literals
            for i in range(n)
            for j in range(i + 1, n + 1)
        )


def _glob(pattern: str) -> str:
    """A glob as an expression: it may start at any part of a name, but `layers.` only at the first.

    Draft layers are `mtp.layers.0`, which an entry for `model.layers.0` does not mean.
    """
    translated = fnmatch.translate(pattern).removesuffix(r"\Z").removesuffix(r"\z")
    start = "" if pattern.startswith("layers.") else r"(?:.*\.)?"
    return rf"{start}{translated}(?:\..*)?$"


def _checked(expression: str) -> str:
    try:
        re.compile(expression)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{expression!r} is not a regular expression: {error}") from None
    return expression
