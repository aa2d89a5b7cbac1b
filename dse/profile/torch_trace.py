"""PyTorch: the Chrome trace of torch.profiler (`export_chrome_trace`), device events in us.

With `record_shapes=True` an operator's shapes stand on its host event; a kernel finds them by the
`External id` that both carry. They are inputs in the operator's order; results are not recorded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from dse.errors import Fault, SpecError
from dse.profile.call import Call, Profile, Tensor
from dse.profile.nsight import short_name

_DEVICE: Final = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_kernel")
_MAX_FAULTS: Final = 20
_NAMES: Final = {
    "c10::half": "FLOAT16", "c10::bfloat16": "BF16", "float": "FLOAT", "signed char": "INT8",
    "c10::float8_e4m3fn": "FLOAT8_E4M3FN", "c10::float8_e5m2": "FLOAT8_E5M2", "int": "INT32",
    "long int": "INT64", "long": "INT64", "unsigned char": "UINT8", "bool": "BOOL",
    "double": "DOUBLE",
}  # fmt: skip


def read(text: str, file: str) -> Profile | None:
    """The device events of a trace, or None where the file is none."""
    if not text.lstrip("\ufeff \r\n\t").startswith(("{", "[")) or '"ph"' not in text:
        return None
    try:
        document = json.loads(text, parse_float=Decimal)
    except json.JSONDecodeError as error:
        where = Fault(file, error.lineno, error.colno, "", f"not JSON: {error.msg}")
        raise SpecError([where]) from None
    except (RecursionError, ValueError):
        raise SpecError.of("cannot be read as JSON: nested too deeply", file=file) from None
    events = document.get("traceEvents") if isinstance(document, Mapping) else document
    if not isinstance(events, list):
        raise SpecError.of("traceEvents: expected a list of events", file=file)
    known = [event for event in events if isinstance(event, Mapping)]
    shapes = _shapes(known)
    faults: list[Fault] = []
    calls = []
    for i, event in enumerate(known):
        if event.get("cat") in _DEVICE and event.get("ph", "X") == "X":
            call = _call(event, shapes, f"traceEvents[{i}]", file, faults)
            if call is not None:
                calls.append(call)
        if len(faults) >= _MAX_FAULTS:
            break
    if faults:
        raise SpecError(faults)
    return Profile(file, "torch.profiler trace", tuple(calls), _steps(known))


def _call(
    event: Mapping[str, Any],
    shapes: Mapping[Any, tuple[Tensor, ...]],
    path: str,
    file: str,
    faults: list[Fault],
) -> Call | None:
    duration, start = _number(event.get("dur")), _number(event.get("ts"))
    for key, value in (("dur", duration), ("ts", start)):
        if value is None:
            found = f"found {event.get(key)!r:.40}; expected a number of microseconds from zero"
            faults.append(Fault(file, None, None, f"{path}.{key}", found))
    if duration is None or start is None:
        return None
    name = event.get("name")
    name = name if isinstance(name, str) and name else "unnamed"
    arguments = event.get("args")
    arguments = arguments if isinstance(arguments, Mapping) else {}
    external = arguments.get("External id", arguments.get("external id"))
    return Call(
        name=name,
        kind=short_name(name),
        core="" if event.get("cat") in ("kernel", "gpu_user_kernel") else "memory operation",
        time_s=float(duration) * 1e-6,
        start_s=start * Decimal("1e-6"),
        device=str(arguments.get("device", "")),
        inputs=shapes.get(external, ()) if isinstance(external, int) else (),
    )


def _number(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    found = Decimal(value)
    return found if 0 <= found < Decimal("1e25") else None


def _shapes(events: Sequence[Mapping[str, Any]]) -> dict[int, tuple[Tensor, ...]]:
    """Input tensors of products by External id, from events of the host."""
    found: dict[int, tuple[Tensor, ...]] = {}
    for event in events:
        arguments = event.get("args")
        if event.get("cat") != "cpu_op" or not isinstance(arguments, Mapping):
            continue
        dims, types = arguments.get("Input Dims"), arguments.get("Input type")
        external = arguments.get("External id")
        if isinstance(dims, list) and isinstance(types, list) and isinstance(external, int):
            tensors = tuple(_tensors(dims, types))
            if tensors:
                found[external] = tensors
    return found


def _tensors(dims: Sequence[Any], types: Sequence[Any]) -> list[Tensor]:
    found = []
    for shape, dtype in zip(dims, types, strict=False):
        if not isinstance(shape, list) or not shape or not isinstance(dtype, str):
            continue
        if all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 10**15 for n in shape):
            found.append(Tensor(tuple(shape), _NAMES.get(dtype.lower(), dtype.upper())))
    return found


def _steps(events: Sequence[Mapping[str, Any]]) -> int | None:
    """Steps that the profiler's schedule marked."""
    names = {
        str(event.get("name"))
        for event in events
        if str(event.get("name", "")).startswith("ProfilerStep#")
    }
    return len(names) or None
