"""A jaxpr as a Python function over numpy arrays: written once, then run at numpy's own speed.

Compiling the pricing of a design with XLA takes seconds. A function of numpy calls is written in a
tenth of that, and costs a microsecond or two per operation instead. Operations that nothing needs
are left out, called functions are written where they are called, and loops become Python's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from dse.search.numpy_rules import named_functions, source_of

Wanted = tuple[bool, ...]  # of each output, whether anything needs it
Bind = Callable[[Any, list[Any]], list[Any]]

_BARRIER: Final = "optimization_barrier"
_CALLS: Final = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call")
# Larger functions are written once and called.
_INLINED: Final = 100
# All of Python's own functions that a program calls.
_BUILTINS: Final = {"range": range, "int": int, "min": min, "max": max}


class Source(NamedTuple):
    """A program as text.

    Its first function takes (N, *arguments), where N is the size that was left open where the
    program was traced, and returns a list of its outputs, None where not wanted.
    """

    text: str
    name: str  # of that function
    constants: dict[str, Any]  # what the text names: numbers, arrays, dtypes, slices
    # Operations that no rule knows, by their name in the text: only jax can run them.
    operations: dict[str, Any]


def source_for(closed: ClosedJaxpr, wanted: Wanted) -> Source:
    """A jaxpr's program, without what only its unwanted outputs need."""
    program = _Program()
    name = program.function(closed, wanted)
    return Source("\n".join(program.functions), name, program.constants, program.operations)


def function_of(source: Source, bind: Bind) -> Callable[..., Any]:
    """The program as a function; `bind` runs an operation that no rule knows."""
    scope = {
        "__builtins__": _BUILTINS,
        "bind": bind,
        **named_functions(),
        **source.constants,
        **source.operations,
    }
    exec(compile(source.text, "<jaxpr>", "exec"), scope)
    found: Callable[..., Any] = scope[source.name]
    return found


def inner_of(eqn: Any) -> ClosedJaxpr:
    """The function that a call calls."""
    inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
    return inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())


class _Liveness:
    """What the wanted outputs of jaxprs need, each jaxpr looked through once for them."""

    def __init__(self) -> None:
        self._live: dict[tuple[int, Wanted], list[tuple[Any, Wanted]]] = {}
        self._reads: dict[tuple[int, Wanted], Wanted] = {}

    def live(self, jaxpr: Jaxpr, wanted: Wanted) -> list[tuple[Any, Wanted]]:
        """(operation, which of its outputs are used), in order.

        Barriers and called functions keep alive only what their used outputs depend on.
        """
        key = id(jaxpr), wanted
        if key not in self._live:
            self._live[key] = self._found(jaxpr, wanted)
        return self._live[key]

    def _found(self, jaxpr: Jaxpr, wanted: Wanted) -> list[tuple[Any, Wanted]]:
        asked = zip(jaxpr.outvars, wanted, strict=True)
        needed = {id(atom) for atom, is_asked in asked if is_asked}
        eqns = []
        for eqn in reversed(jaxpr.eqns):
            used = tuple([id(out) in needed for out in eqn.outvars])
            if True in used:
                eqns.append((eqn, used))
                needed.update(self.read_by(eqn, used))
        eqns.reverse()
        return eqns

    def read_by(self, eqn: Any, used: Wanted) -> list[int]:
        """Addresses of the inputs of an operation that its used outputs depend on."""
        if eqn.primitive.name == _BARRIER:
            reads = used
        elif eqn.primitive.name in _CALLS:
            reads = self._read_inside(inner_of(eqn).jaxpr, used)
        else:
            return [id(atom) for atom in eqn.invars]
        return [id(atom) for atom, is_read in zip(eqn.invars, reads, strict=True) if is_read]

    def _read_inside(self, inner: Jaxpr, used: Wanted) -> Wanted:
        key = id(inner), used
        if key not in self._reads:
            read = {id(atom) for atom, is_used in zip(inner.outvars, used, strict=True) if is_used}
            for one, outputs in self.live(inner, used):
                read.update(self.read_by(one, outputs))
            self._reads[key] = tuple(id(var) in read for var in inner.invars)
        return self._reads[key]


class _Program:
    """Functions written so far, and the values that their source names."""

    def __init__(self) -> None:
        self.functions: list[str] = []
        self.constants: dict[str, Any] = {}
        self.operations: dict[str, Any] = {}
        self.known: dict[Any, str] = {}
        self.kept: list[Any] = []  # what `known` tells apart by address
        self.liveness = _Liveness()

    def constant(self, value: object) -> str:
        """The name of a number, an array, a dtype or a tuple of slices."""
        if isinstance(value, np.generic | np.ndarray):
            key: Any = (type(value), value.dtype, value.shape, value.tobytes())
        else:
            key = (type(value), repr(value))
        return self._named(key, value, self.constants)

    def operation(self, eqn: Any) -> str:
        """The name of an operation that jax runs."""
        self.kept.append(eqn)
        return self._named(id(eqn), eqn, self.operations)

    def _named(self, key: Any, value: object, among: dict[str, Any]) -> str:
        if key not in self.known:
            self.known[key] = f"k{len(self.known)}"
            among[self.known[key]] = value
        return self.known[key]

    def function(self, closed: ClosedJaxpr, wanted: Wanted) -> str:
        """The name of a function of (N, *arguments) that does what a jaxpr says."""
        key = (id(closed.jaxpr), tuple(map(id, closed.consts)), wanted)
        if key not in self.known:
            self.kept.append(closed)
            name = self.known[key] = f"f{len(self.known)}"
            body = _Body(self)
            arguments = [body.new() for _ in closed.jaxpr.invars]
            outputs = body.write(closed, arguments, wanted)
            self.functions.append(body.text(name, arguments, outputs))
        return self.known[key]


class _Body:
    """The lines of one function; values are called s0, s1, ... until `text` reuses their names."""

    def __init__(self, program: _Program) -> None:
        self.program = program
        self.lines: list[str] = []
        self.count = 0

    def new(self) -> str:
        self.count += 1
        return f"s{self.count}"

    def write(self, closed: ClosedJaxpr, inputs: Sequence[str], wanted: Wanted) -> list[str]:
        """Writes a jaxpr's operations; the names of its outputs, None where not wanted."""
        jaxpr = closed.jaxpr
        names: dict[Any, str] = dict(zip(jaxpr.invars, inputs, strict=True))
        for var, const in zip(jaxpr.constvars, closed.consts, strict=True):
            names[var] = self.program.constant(np.asarray(const))

        def read(atom: Any) -> str:
            if isinstance(atom, Literal):
                dtype = getattr(atom.aval, "dtype", None)
                return self.program.constant(np.asarray(atom.val, dtype)[()])
            return names.get(atom, "None")

        for eqn, used in self.program.liveness.live(jaxpr, wanted):
            outputs = self._operation(eqn, [read(atom) for atom in eqn.invars], used)
            names.update(zip(eqn.outvars, outputs, strict=True))
        asked = zip(jaxpr.outvars, wanted, strict=True)
        return [read(atom) if is_asked else "None" for atom, is_asked in asked]

    def _operation(self, eqn: Any, inputs: list[str], used: Wanted) -> list[str]:
        kind = eqn.primitive.name
        if kind == _BARRIER:
            return inputs
        if kind in _CALLS:
            inner = inner_of(eqn)
            if len(inner.jaxpr.eqns) <= _INLINED:
                return self.write(inner, inputs, used)
            return self._assign(self._call(inner, inputs, used), used)
        if kind in _FLOW:
            found = _FLOW[kind](self, eqn, inputs)
            if found is not None:
                return found
        source = source_of(eqn, inputs, self.program)
        if source is None:
            bound = f"bind({self.program.operation(eqn)}, [{', '.join(inputs)}])"
            return self._assign(bound, (True,) * len(eqn.outvars))
        if source in inputs:
            return [source]
        out = self.new()
        self.lines.append(f"{out} = {source}")
        return [out]

    def _call(self, closed: ClosedJaxpr, inputs: Sequence[str], wanted: Wanted) -> str:
        return f"{self.program.function(closed, wanted)}({', '.join(['N', *inputs])})"

    def _assign(self, source: str, used: Wanted) -> list[str]:
        names = [self.new() if is_used else "None" for is_used in used]
        targets = "".join(f"{'_' if name == 'None' else name}, " for name in names)
        self.lines.append(f"{targets} = {source}")
        return names

    def scan(self, eqn: Any, inputs: list[str]) -> list[str] | None:
        """A loop of fixed length that carries its values; None for one that stacks any."""
        p = eqn.params
        n_fixed = p["num_consts"] + p["num_carry"]
        if len(inputs) > n_fixed or len(p["jaxpr"].out_avals) > p["num_carry"]:
            return None
        carry = self._carried(inputs[p["num_consts"] :])
        call = self._call(p["jaxpr"], [*inputs[: p["num_consts"]], *carry], _all(carry))
        self._loop(f"for _ in range({p['length']})", carry, call)
        return carry

    def while_(self, eqn: Any, inputs: list[str]) -> list[str]:
        """A loop for as long as its condition holds."""
        p = eqn.params
        n_cond, n_both = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
        carry = self._carried(inputs[n_both:])
        asks = self._call(p["cond_jaxpr"], [*inputs[:n_cond], *carry], (True,))
        call = self._call(p["body_jaxpr"], [*inputs[n_cond:n_both], *carry], _all(carry))
        self._loop(f"while {asks}[0]", carry, call)
        return carry

    def _carried(self, inputs: list[str]) -> list[str]:
        carry = [self.new() for _ in inputs]
        self.lines += [f"{name} = {start}" for name, start in zip(carry, inputs, strict=True)]
        return carry

    def _loop(self, head: str, carry: list[str], call: str) -> None:
        self.lines.append(f"{head}: {''.join(f'{name}, ' for name in carry)} = {call}")

    def cond(self, eqn: Any, inputs: list[str]) -> list[str]:
        """One of several branches."""
        which, *rest = inputs
        branches = eqn.params["branches"]
        every = (True,) * len(eqn.outvars)
        chosen = [self.program.function(one, every) for one in branches]
        index = f"min(max(int({which}), 0), {len(branches) - 1})"
        call = f"({', '.join(chosen)})[{index}]({', '.join(['N', *rest])})"
        return self._assign(call, every)

    def text(self, name: str, arguments: list[str], outputs: list[str]) -> str:
        """The function's source, in which a name is free again after its value's last use."""
        parts = [_VALUE.split(line) for line in [*self.lines, f"return [{', '.join(outputs)}]"]]
        last = {one: i for i, line in enumerate(parts) for one in line[1::2]}
        free: list[str] = []
        named = {one: f"a{i}" for i, one in enumerate(arguments)}
        written = [f"def {name}({', '.join(['N', *(named[one] for one in arguments)])}):"]
        for i, line in enumerate(parts):
            values = line[1::2]
            for one in values:
                if one not in named:
                    named[one] = free.pop() if free else f"v{len(named)}"
            line[1::2] = [named[one] for one in values]
            written.append(f"    {''.join(line)}")
            over = {one for one in values if last[one] == i}
            free += [named[one] for one in sorted(over)]
        return "\n".join(written)


_VALUE: Final = re.compile(r"\b(s\d+)\b")
_FLOW: Final[dict[str, Callable[[_Body, Any, list[str]], list[str] | None]]] = {
    "scan": _Body.scan,
    "while": _Body.while_,
    "cond": _Body.cond,
}


def _all(names: list[str]) -> Wanted:
    return (True,) * len(names)
