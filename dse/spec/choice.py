"""Which engine a study uses, and which of its parameters it overrides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from dse import catalog
from dse.errors import SpecError
from dse.spec.base import Location, Spec, fault, folder_of, unknown_key
from dse.spec.deployments import DeploymentFile
from dse.spec.engine import PARAMETERS
from dse.spec.kernels import KernelFile
from dse.spec.quantity import Name, Quantity
from dse.spec.reference import Named
from dse.spec.sourced import Sourced
from dse.units import describe

NONE: Final = "none"
CATALOGUE: Final = "catalogue"  # of kernels: the catalogue's, whatever deployments were fitted on
_FILE_KINDS: Final[Mapping[str, tuple[catalog.Kind, type[Spec]]]] = {
    "kernels": ("kernels", KernelFile),
    "deployments": ("deployments", DeploymentFile),
}
_FILES: Final = tuple(_FILE_KINDS)
_OWN: Final = ("name", *_FILES, "parameters")


class EngineChoice(Spec):
    """An engine's name, optionally `name@version`, with parameters that replace its own.

    Written as a name, or as a mapping whose other keys are engine parameters. `kernels` is a file
    of fitted kernels, or `catalogue` for those that it has; `deployments` is a file of fitted
    deployments; `none` stands for priors alone. Without either the catalogue's deployments are
    used, and its kernels where the deployments were fitted on them.
    """

    name: Name
    kernels: Name | None = None
    deployments: Name | None = None
    parameters: dict[str, Sourced] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _from_written(cls, raw: Any) -> Any:
        if isinstance(raw, str):
            return {"name": raw}
        if isinstance(raw, EngineChoice):
            return raw
        if not isinstance(raw, Mapping):
            raise fault(f"found {describe(raw)}; expected an engine's name, or a mapping with name")
        nested = raw.get("parameters")
        nested = nested if isinstance(nested, Mapping) else {}
        flat = {key: value for key, value in raw.items() if key not in _OWN}
        written: list[tuple[Location, Any]] = [((str(key),), flat[key]) for key in flat]
        written += [(("parameters", str(key)), nested[key]) for key in nested]
        found: list[InitErrorDetails] = []
        parameters = {}
        for at, value in written:
            try:
                parameters[str(at[-1])] = _parameter(str(at[-1]), value)
            except PydanticCustomError as error:
                found.append(InitErrorDetails(type=error, loc=at, input=value))
        if found:
            raise ValidationError.from_exception_data(cls.__name__, found)
        own = {key: raw[key] for key in ("name", *_FILES) if key in raw}
        return own | {"parameters": parameters}

    @field_validator("name")
    @classmethod
    def _known(cls, name: str, info: ValidationInfo) -> str:
        plain = name.partition("@")[0]
        if not catalog.is_path(name) and not catalog.names("engines"):
            return name
        try:
            path = catalog.resolve("engines", plain, folder_of(info.context))
        except SpecError as error:
            raise fault(error.faults[0].message) from None
        if not catalog.is_path(name):
            return name
        if not path.is_file():
            raise fault(f"found {name!r:.80}; no such file")
        return str(path)

    @field_validator(*_FILES)
    @classmethod
    def _readable(cls, written: str | None, info: ValidationInfo) -> str | None:
        """A file by its absolute path; its faults are those of the study."""
        if written is None or written == NONE:
            return written
        if info.field_name == "kernels" and written == CATALOGUE:
            return written
        kind, model = _FILE_KINDS[str(info.field_name)]
        Named(kind).read(model, written, info.context)
        return str(catalog.resolve(kind, written, folder_of(info.context)).resolve())

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        parameter = handler.resolve_ref_schema(handler(schema))["properties"]["parameters"]
        value = parameter["additionalProperties"]
        name = {"type": "string", "examples": list(catalog.names("engines"))}
        own = {key: {**value, "description": rule.meaning} for key, rule in PARAMETERS.items()}
        files = {
            key: {"type": "string", "description": f"a file of fitted {key}, or none"}
            for key in _FILES
        }
        files["kernels"]["description"] += f", or {CATALOGUE} for the catalogue's"
        known = {"name": name, **files, "parameters": parameter, **own}
        whole = {
            "type": "object",
            "properties": known,
            "required": ["name"],
            "additionalProperties": False,
        }
        return {"anyOf": [name, whole], "description": cls.__doc__ or ""}


def _parameter(name: str, raw: Any) -> Any:
    rule = PARAMETERS.get(name)
    if rule is None:
        raise fault(unknown_key(name, ("name", *_FILES, *PARAMETERS)))
    if isinstance(raw, Sourced):
        return raw
    quantity = Quantity(rule.dimension, rule.low, rule.high, zero=rule.zero)
    if isinstance(raw, Mapping):
        return {**raw, "value": quantity.parse(raw.get("value"))}
    return quantity.parse(raw)
