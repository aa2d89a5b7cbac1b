"""Blocks that a study may name instead of writing out: hardware, objective, workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from dse import catalog
from dse.errors import Fault, SpecError
from dse.spec.base import Spec, fault, faults_elsewhere, folder_of
from dse.spec.load import load
from dse.units import describe


@dataclass(frozen=True, slots=True)
class Named:
    """Annotation of a block that may also be a catalogue name or a path: it is read at once.

    Holding the block itself, a validated study needs nothing else and prints whole.
    """

    kind: catalog.Kind

    def __get_pydantic_core_schema__(
        self, source: type[Spec], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        def read(raw: Any, info: ValidationInfo) -> Any:
            if isinstance(raw, str | Path):
                return self.read(source, raw, info.context)
            if isinstance(raw, Mapping | Spec):
                return raw
            expected = "expected a catalogue name, a path or a mapping"
            raise fault(f"found {describe(raw)}; {expected}")

        return core_schema.with_info_before_validator_function(read, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        known = catalog.names(self.kind)
        name = {"type": "string", "description": "a catalogue name or a path"}
        return {"anyOf": [{**name, "examples": list(known)}, handler(schema)]}

    def read(self, model: type[Spec], raw: str | Path, context: Any) -> Spec:
        """The block that a name or path means; raises a fault, or those of its file."""
        try:
            path = catalog.resolve(self.kind, raw, folder_of(context))
        except SpecError as error:
            raise fault(error.faults[0].message) from None
        try:
            loaded = load(model, path)
        except SpecError as error:
            # A file that cannot be opened is a fault of the line that names it.
            if all(item.line is None for item in error.faults):
                raise fault(f"{path}: {_messages(error.faults)}") from None
            raise faults_elsewhere(error.faults) from None
        if isinstance(context, dict):
            context.setdefault("inputs", []).extend(loaded.inputs)
        return loaded.spec


def _messages(faults: list[Fault]) -> str:
    return "; ".join(item.message for item in faults)
