"""One server's command line, written flag by flag from an engine's table."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dse.export.flags import Table, accepted


@dataclass
class Command:
    """Words of a command line, its environment, and what could not be said in it."""

    table: Table
    version: str
    words: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    lacks: list[str] = field(default_factory=list)

    def put(self, knob: str, value: Any = None, *, else_say: str = "") -> None:
        """Add a knob. What the version does not have is noted, with what is lost by it."""
        flag = self.table.flag(knob, self.version)
        text = None if value is None else self._text(knob, value)
        if flag is None or flag.flag not in accepted(self.table.engine, self.version):
            what = f"{knob} {text}" if text is not None else knob
            more = f": {else_say}" if else_say else ""
            self.lacks.append(f"{what}: {self.table.engine} {self.version} has no flag{more}")
            return
        if flag.values:
            if str(value) not in flag.values:
                known = ", ".join(flag.values)
                self.lacks.append(f"{knob} {value}: {flag.flag} is known for {known} only")
                return
            text = flag.values[str(value)]
        self.words += [flag.flag] if text is None else [flag.flag, text]

    @staticmethod
    def _text(knob: str, value: Any) -> str:
        if isinstance(value, Mapping):
            return json.dumps(value, separators=(",", ":"))
        if isinstance(value, float):
            return f"{value:.6g}"
        return str(value)


def shell_line(words: list[str], env: Mapping[str, str] | None = None) -> str:
    """A command as a shell reads it back word by word, a flag with its value on each line."""
    lines = [" ".join(f"{key}={shlex.quote(value)}" for key, value in (env or {}).items())]
    for word in words:
        quoted = shlex.quote(word)
        starts = word.startswith("-") and not word.lstrip("-").replace(".", "").isdigit()
        if starts and word.startswith("--"):
            lines.append(f"  {quoted}")
        else:
            lines[-1] = f"{lines[-1]} {quoted}" if lines[-1] else quoted
    return " \\\n".join(lines)
