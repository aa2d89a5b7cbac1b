"""Reading how a source says that a model was split: `DEP8`, `TP4 x2`, `EP32 TP1, ...`.

Each rule is one pattern that must match the whole text before its first comma (or the whole text),
and the degrees that it means. What no rule reads is refused; `translations.yaml` says the same in
words that a rule reads, where the case's notes state the split.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dse.errors import DseError


@dataclass(frozen=True, slots=True)
class Degrees:
    """Degrees of one replica, how many the text says there are, and what was assumed."""

    tp: int = 1
    dp: int = 1
    ep: int = 1
    pp: int = 1
    replicas: int | None = None
    slots: int | None = None  # decoding requests of a replica
    assumed: tuple[str, ...] = field(default=())

    @property
    def accelerators(self) -> int:
        """Of one replica."""
        return self.tp * self.dp * self.pp


@dataclass(frozen=True, slots=True)
class Split:
    """One pool, or a prefill and a decode pool."""

    decode: Degrees
    prefill: Degrees | None = None


_WIDE: Final = "attention data parallel over the expert-parallel ranks"


def _attention_dp(ranks: str, assumed: tuple[str, ...] = ()) -> Degrees:
    n = int(ranks)
    return Degrees(dp=n, ep=n, assumed=assumed)


def _total_tp(tp: str, dp: str, ep: str | None = None) -> Degrees:
    """SGLang counts tensor-parallel ranks of the experts; attention splits them into dp groups."""
    if int(tp) % int(dp):
        raise DseError(f"TP{tp} is no multiple of DP{dp}")
    return Degrees(tp=int(tp) // int(dp), dp=int(dp), ep=int(ep or tp))


Rule = tuple[str, Callable[..., Split]]
_RULES: Final[tuple[Rule, ...]] = (
    (r"TP(\d+)(?: prefill)?(?: DP1)?(?: \(.*\))?", lambda n: Split(Degrees(tp=int(n)))),
    (r"TP(\d+) x(\d+)", lambda n, k: Split(Degrees(tp=int(n), replicas=int(k)))),
    (r"DEP(\d+)", lambda n: Split(_attention_dp(n))),
    (r"EP(\d+)(?: \(.*\))?, DP attention", lambda n: Split(_attention_dp(n))),
    (r"EP(\d+) (?:TP1|attn-DP\1)(?: \(.*\))?", lambda n: Split(_attention_dp(n))),
    (r"DP(\d+) \+ EP\1(?: \(.*\))?", lambda n: Split(_attention_dp(n))),
    (r"EP(\d+)(?: \(.*\))?", lambda n: Split(_attention_dp(n, (_WIDE,)))),
    (r"CPP(\d+) TP(\d+)", lambda p, n: Split(Degrees(tp=int(n), pp=int(p)))),
    (r"TP(\d+) DP(\d+)(?: attn-DP \+)? EP(\d+)", lambda t, d, e: Split(_total_tp(t, d, e))),
    (
        r"(\d+)P\(TP(\d+) DP(\d+)\)\+(\d+)D\(TP(\d+) DP(\d+)\)",
        lambda p, t, d, q, u, e: Split(
            _workers(_total_tp(u, e), int(q)), _workers(_total_tp(t, d), int(p))
        ),
    ),
    (
        r"1P1D, TP(\d+)(?: prefill| each|\+TP\1)",
        lambda n: Split(Degrees(tp=int(n), replicas=1), Degrees(tp=int(n), replicas=1)),
    ),
)


def _workers(of: Degrees, n: int) -> Degrees:
    return Degrees(of.tp, of.dp, of.ep, of.pp, n, of.slots, of.assumed)


def split_of(text: str) -> Split:
    """The split that a text means. Raises DseError where it states none that a rule reads."""
    if not re.search(r"(?i)[TED]P ?\d|dp\d", text):
        raise DseError("the source does not state the degrees of parallelism")
    for part in _readings(text):
        for pattern, means in _RULES:
            found = re.fullmatch(pattern, part)
            if found is not None:
                return means(*found.groups())
    raise DseError(f"no rule reads the degrees of {text!r:.70}")


def _readings(text: str) -> list[str]:
    """The whole text first, then with one more remark after a comma left off each time."""
    parts = text.split(", ")
    return [", ".join(parts[:n]) for n in range(len(parts), 0, -1)]


_INSTANCE: Final = re.compile(r"(agg|prefill|decode): (\d+) x \[(\d+) dies ([^\]]*)\]")


def deployment_split(text: str) -> Split:
    """The split of a `deployment` cell: `decode: 1 x [32 dies tp2 dp16 ep32 slots 480]`.

    Raises DseError where a pool, its degrees or the slots are missing.
    """
    pools: dict[str, Degrees] = {}
    for name, count, dies, rest in _INSTANCE.findall(text):
        numbers = {key: int(v) for key, v in re.findall(r"(tp|dp|ep|pp|slots) ?(\d+)", rest)}
        if "tp" not in numbers or "dp" not in numbers:
            raise DseError(f"no degrees in the deployment {text!r:.70}")
        one = Degrees(
            tp=numbers["tp"],
            dp=numbers["dp"],
            ep=numbers.get("ep", 1),
            pp=numbers.get("pp", 1),
            replicas=int(count),
            slots=numbers.get("slots"),
        )
        if one.accelerators != int(dies):
            raise DseError(f"{one.accelerators} ranks on {dies} dies in {text!r:.70}")
        pools[name] = one
    decode = pools.get("decode") or pools.get("agg")
    if decode is None:
        raise DseError(f"no rule reads the deployment {text!r:.70}")
    return Split(decode, pools.get("prefill"))
