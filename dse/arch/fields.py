"""Typed access to the fields of one `config.json`, collecting every fault before failing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from dse.arch.vocabulary import IRRELEVANT, IRRELEVANT_TO_FORMAT, SYNONYMS
from dse.errors import Fault, SpecError

LARGEST: Final = 1 << 24  # beyond any width, head or expert count ever published
LARGEST_VOCABULARY: Final = 1 << 26
LARGEST_DEPTH: Final = 2048
_MOST_FAULTS: Final = 200


class Fields:
    """Fields of a configuration: reads by meaning, remembers what was asked, gathers faults.

    A faulty or missing field yields a harmless stand-in, so that reading goes on and all faults
    are reported at once by `raise_faults`.
    """

    def __init__(
        self, raw: Mapping[str, object], where: str = "", parent: Fields | None = None
    ) -> None:
        self._raw = raw
        self._where = where
        self._asked: set[str] = set()
        self._inner: dict[str, Fields] = {}
        self.faults: list[Fault] = [] if parent is None else parent.faults
        self.warnings: list[str] = [] if parent is None else parent.warnings

    def fault(self, name: str, message: str) -> None:
        path = f"{self._where}.{name}" if self._where and name else self._where or name
        fault = Fault(None, None, None, path, message)
        # A field may be asked for more than once, and a long list be wrong all through.
        if fault not in self.faults and len(self.faults) < _MOST_FAULTS:
            self.faults.append(fault)

    def warn(self, message: str) -> None:
        if message not in self.warnings:
            self.warnings.append(message)

    def sound(self, *names: str) -> bool:
        """Whether no fault names these fields of this mapping: their values are no stand-ins."""
        paths = {f"{self._where}.{key}" if self._where else key for key in map(self._key, names)}
        return all(fault.path not in paths for fault in self.faults)

    def raise_faults(self) -> None:
        """Raise `SpecError` with all faults gathered so far, if there are any."""
        if self.faults:
            raise SpecError(self.faults)

    def has(self, name: str) -> bool:
        """Whether the field is present and not null, under any of its names."""
        return self._find(name) is not None

    def unasked(self) -> list[str]:
        """Fields that nothing asked for and that are not known to be irrelevant to cost."""
        known = IRRELEVANT_TO_FORMAT if "quant" in self._where else IRRELEVANT
        here = [
            f"{self._where}.{key}" if self._where else key
            for key, value in self._raw.items()
            if key not in self._asked and key not in known and value is not None
        ]
        return here + [key for inner in self._inner.values() for key in inner.unasked()]

    def ignore(self, *names: str) -> None:
        """Mark fields as understood without a part in the cost of this family."""
        self._asked.update(names)

    def integer(
        self, name: str, default: int | None = None, *, least: int = 1, most: int = LARGEST
    ) -> int:
        """A whole number within [least, most]; required where no default is given."""
        found = self._find(name)
        if found is None:
            if default is None:
                self.fault(name, f"is missing{self._other_names(name)}")
                return max(least, 1)
            return default
        key, value = found
        return self._whole(key, value, least, most, default)

    def optional_integer(self, name: str, *, least: int = 1, most: int = LARGEST) -> int | None:
        """As `integer`, or None where absent or null."""
        return self.integer(name, least, least=least, most=most) if self.has(name) else None

    def number(self, name: str, default: float | None = None) -> float:
        """A finite positive number."""
        found = self._find(name)
        if found is None:
            if default is None:
                self.fault(name, f"is missing{self._other_names(name)}")
            return 1.0 if default is None else default
        key, value = found
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fault(key, f"expected a number, found {_show(value)}")
        elif not math.isfinite(value) or value <= 0 or value > LARGEST:
            self.fault(key, f"expected a number above 0 and at most {LARGEST}, found {value}")
        else:
            return float(value)
        return 1.0

    def flag(self, name: str, default: bool) -> bool:
        found = self._find(name)
        if found is None:
            return default
        key, value = found
        if not isinstance(value, bool):
            self.fault(key, f"expected true or false, found {_show(value)}")
            return default
        return value

    def text(self, name: str, default: str = "") -> str:
        found = self._find(name)
        if found is None:
            return default
        key, value = found
        if not isinstance(value, str):
            self.fault(key, f"expected a text, found {_show(value)}")
            return default
        return value

    def texts(self, name: str, allowed: Sequence[str] = ()) -> list[str]:
        """A list of texts, each one of `allowed` where that is given; [] where absent."""
        values = self._sequence(name)
        key = self._key(name)
        out = []
        for i, value in enumerate(values):
            if not isinstance(value, str):
                self.fault(f"{key}[{i}]", f"expected a text, found {_show(value)}")
            elif allowed and value not in allowed:
                self.fault(f"{key}[{i}]", f"unknown {_show(value)}, known are {', '.join(allowed)}")
            else:
                out.append(value)
        return out

    def integers(self, name: str, *, least: int = 0, most: int = LARGEST) -> list[int]:
        """A list of whole numbers; [] where absent."""
        key = self._key(name)
        return [
            self._whole(f"{key}[{i}]", value, least, most, least)
            for i, value in enumerate(self._sequence(name))
        ]

    def is_list(self, name: str) -> bool:
        found = self._find(name)
        return found is not None and isinstance(found[1], list)

    def child(self, name: str) -> Fields:
        """A nested mapping, empty where absent; its faults count as this one's."""
        if name in self._inner:
            return self._inner[name]
        found = self._find(name)
        path = f"{self._where}.{name}" if self._where else name
        value: object = {} if found is None else found[1]
        if not isinstance(value, Mapping):
            self.fault(name, f"expected a mapping, found {_show(value)}")
            value = {}
        self._inner[name] = Fields(value, path, self)
        return self._inner[name]

    def children(self, name: str) -> list[Fields]:
        """A list of nested mappings."""
        out = []
        for i, value in enumerate(self._sequence(name)):
            path = f"{self._where}.{name}[{i}]" if self._where else f"{name}[{i}]"
            if not isinstance(value, Mapping):
                self.fault(f"{name}[{i}]", f"expected a mapping, found {_show(value)}")
                value = {}
            out.append(Fields(value, path, self))
        return out

    def mappings(self, name: str, most: int) -> dict[str, Fields]:
        """A mapping of mappings, {} where absent."""
        found = self._find(name)
        value: object = {} if found is None else found[1]
        if not isinstance(value, Mapping) or len(value) > most:
            self.fault(name, f"expected a mapping of at most {most} entries, found {_show(value)}")
            return {}
        path = f"{self._where}.{name}" if self._where else name
        out = {}
        for key, inner in value.items():
            if isinstance(inner, Mapping):
                out[key] = Fields(inner, f"{path}.{key}", self)
            else:
                self.fault(f"{name}.{key}", f"expected a mapping, found {_show(inner)}")
        return out

    def long_texts(self, name: str, most: int) -> list[str]:
        """A list of texts that may be long, [] where absent."""
        found = self._find(name)
        value: object = [] if found is None else found[1]
        if not isinstance(value, list) or len(value) > most:
            self.fault(name, f"expected a list of at most {most} texts, found {_show(value)}")
            return []
        texts = [entry for entry in value if isinstance(entry, str)]
        if len(texts) < len(value):
            self.fault(name, "expected a list of texts")
        return texts

    def is_mapping(self, name: str) -> bool:
        found = self._find(name)
        return found is not None and isinstance(found[1], Mapping)

    def of_length(self, name: str, values: list[str] | list[int], n: int, spare: int = 0) -> bool:
        """Whether a list per layer has n entries (up to `spare` more); a fault where it has not."""
        if n <= len(values) <= n + spare:
            return True
        more = f" to {n + spare}" if spare else ""
        self.fault(
            self._key(name), f"has {len(values)} entries where {n}{more} layers are expected"
        )
        return False

    def _sequence(self, name: str) -> list[object]:
        found = self._find(name)
        if found is None:
            return []
        key, value = found
        if not isinstance(value, list):
            self.fault(key, f"expected a list, found {_show(value)}")
            return []
        if len(value) > 2 * LARGEST_DEPTH:
            self.fault(key, f"has {len(value)} entries, at most {2 * LARGEST_DEPTH} are read")
            return []
        return value

    def _find(self, name: str) -> tuple[str, object] | None:
        names = SYNONYMS.get(name, (name,))
        self._asked.update(names)
        present = [(key, self._raw[key]) for key in names if self._raw.get(key) is not None]
        if not present:
            return None
        key, value = present[0]
        for other, again in present[1:]:
            if again != value:
                self.fault(other, f"is {_show(again)} where {key} is {_show(value)}")
        return key, value

    def _key(self, name: str) -> str:
        found = self._find(name)
        return name if found is None else found[0]

    def _whole(self, key: str, value: object, least: int, most: int, default: int | None) -> int:
        stand_in = max(least, 1) if default is None else default
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fault(key, f"expected a whole number, found {_show(value)}")
            return stand_in
        if isinstance(value, float) and not value.is_integer():
            self.fault(key, f"expected a whole number, found {value}")
            return stand_in
        if not least <= value <= most:
            self.fault(key, f"expected a number from {least} to {most}, found {_show(value)}")
            return stand_in
        return int(value)

    @staticmethod
    def _other_names(name: str) -> str:
        names = SYNONYMS.get(name, ())
        return f" (read from {', '.join(names)})" if names else ""


def _show(value: object) -> str:
    """A value as a fault shows it: short, whatever its size."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return "a number of more than 38 digits"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
