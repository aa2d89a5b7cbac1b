"""The whole explanation of one design, as the document that `dse explain --json` prints."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dse.explain.crossovers import (
    BATCHES,
    Sweeps,
    contexts_of,
    crossovers_document,
    main_gemm,
    sweeps,
)
from dse.explain.drafting import drafting_document, plain_seconds
from dse.explain.experts import main_kind, moe_document
from dse.explain.history import History, histories, history_rows
from dse.explain.phases import (
    LinkTimes,
    link,
    link_document,
    phase_document,
    reuse_document,
    setting_of,
)
from dse.explain.shares import Steps, joined, nudged, price, swept
from dse.explain.subject import Side, Subject, decode_side, prefill_side
from dse.explain.transfers import Swept, transfer_rows
from dse.explain.transfers import swept as swept_transfers
from dse.search.programs import program_of
from dse.serving.types import Deployment, System, fields_of
from dse.struct import Array, Scalar


class _Priced(NamedTuple):
    prefill: Steps
    decode: Steps
    link: LinkTimes | None
    transfers: Swept | None
    plain_s: Array | None  # decode steps over batches without drafts
    history: list[History]
    sweeps: Sweeps
    sides: tuple[Side, Side]


def _price(
    system: System,
    design: Deployment,
    batch: Scalar,
    contexts: Array,
    choice: tuple[int | None, int],
) -> _Priced:
    expert, gemm = choice
    model = system.model
    before, after = prefill_side(system, design), decode_side(system, design, batch)
    batches = jnp.asarray(BATCHES, contexts.dtype) / design.decode.pp
    between = setting_of(system, design) if design.mode == "disaggregated" else None
    return _Priced(
        prefill=price(model, before, nudged(before)),
        decode=price(model, after, joined(nudged(after), swept(contexts, batches))),
        link=None if between is None else link(between),
        transfers=None if between is None else swept_transfers(between),
        plain_s=plain_seconds(model, after, contexts[0], batches),
        history=histories(model, after),
        sweeps=sweeps(model, after, contexts, expert, gemm),
        sides=(before, after),
    )


def explain(subject: Subject) -> dict[str, Any]:
    """Phases, crossovers, rows per expert and attention over contexts of one design.

    Every figure comes from the cost functions that price the design, in double precision.
    """
    contexts = contexts_of(subject)
    given = (subject.system, subject.design, float(subject.batch), np.asarray(contexts))
    # Read once: interpreting the program takes a second where compiling it takes twenty.
    expert = main_kind(subject)
    choice = (None if expert is None else expert[0], main_gemm(subject.system.model))
    program = program_of(_price, given, (choice,))
    priced: _Priced = jax.tree.unflatten(program.structure, program.run(*given))
    before, after = priced.sides
    seconds = np.asarray(sum(fields_of(priced.decode.cost.terms).values()))
    step_s = seconds[-len(contexts) * len(BATCHES) :].reshape(len(contexts), len(BATCHES))
    return {
        "phases": {
            "prefill": phase_document(subject, before, priced.prefill),
            "decode": phase_document(subject, after, priced.decode),
            "link": link_document(priced.link),
        },
        "reuse": reuse_document(subject),
        "transfers": []
        if priced.transfers is None
        else transfer_rows(priced.transfers, subject.design.fabric),
        "drafting": drafting_document(after, subject.batch, step_s[0], priced.plain_s),
        "crossovers": crossovers_document(subject, after, priced.sweeps, step_s),
        "moe": moe_document(subject, {"prefill": before, "decode": after}),
        "attention": history_rows(subject, priced.history),
    }
