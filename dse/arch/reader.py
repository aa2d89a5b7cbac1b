"""From the fields of a `config.json` to a `ModelArch`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from dse.arch.blocks import Body, Layer
from dse.arch.fields import LARGEST_VOCABULARY, Fields
from dse.arch.formats import activation_dtype, draft_formats, part_formats
from dse.arch.quant import Quantization, read_quantization
from dse.arch.registry import BY_TYPE, FALLBACK, Family, find_family
from dse.arch.types import DraftLayers, Mixer, Mlp, ModelArch
from dse.errors import SpecError, did_you_mean

_INNER: Final = ("text_config", "llm_config", "language_config")
# What a config of an unknown family needs to be read as a Llama-like model.
_PLAIN: Final = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
)
_LARGEST_CONTEXT: Final = 10**12
_Kind = TypeVar("_Kind")


def read_config(
    config: Mapping[str, object], name: str, sidecar: Mapping[str, object] | None = None
) -> ModelArch:
    """Read a model's config (and its `hf_quant_config.json`, the sidecar) into exact shapes.

    Raises `SpecError` with every missing, faulty or unknown field. What is read but may not be the
    whole truth is listed in `ModelArch.warnings`.
    """
    if not isinstance(config, Mapping):
        raise SpecError.of("expected a mapping of fields at the top", file=name)
    whole = Fields(config)
    text = _text_level(whole)
    family = _family(whole, text)
    whole.raise_faults()
    body = family.build(text)
    quant = read_quantization(whole, text, sidecar)
    vocab = text.integer("vocab_size", most=LARGEST_VOCABULARY)
    hidden = text.integer("hidden_size")
    tied = _tied(whole, text, family)
    context = text.optional_integer("max_position_embeddings", most=_LARGEST_CONTEXT)
    whole.raise_faults()
    _report_unknown(whole, text, strict=family is FALLBACK)
    whole.raise_faults()
    formats = part_formats(body, quant)
    return ModelArch(
        name=name,
        hidden=hidden,
        vocab=vocab,
        n_layers=len(body.layers),
        tied_embeddings=tied,
        mixers=_counted(layer.mixer for layer in body.layers),
        mlps=_counted(layer.mlp for layer in body.layers),
        other_parameters=body.other_parameters
        + sum(layer.other_parameters for layer in body.layers),
        formats=formats,
        draft=_draft(body, quant),
        kv_dtype=quant.kv_dtype or body.native_kv_dtype or "bf16",
        activation_dtype=activation_dtype(formats.values()),
        max_context_tokens=context,
        residual_streams=body.residual_streams,
        warnings=tuple(whole.warnings),
        model_type=text.text("model_type") or whole.text("model_type"),
    )


def _text_level(whole: Fields) -> Fields:
    """The fields of the language model: nested in multimodal configs, else the top level."""
    for name in _INNER:
        if whole.is_mapping(name):
            if any(whole.has(tower) for tower in ("vision_config", "audio_config")):
                whole.warn("only the language model is read, not the vision or audio towers")
            return whole.child(name)
    return whole


def _family(whole: Fields, text: Fields) -> Family:
    types = [name for name in (text.text("model_type"), whole.text("model_type")) if name]
    classes = text.texts("architectures") + whole.texts("architectures")
    family = find_family(types, classes)
    if family is not None:
        return family
    found = ", ".join(dict.fromkeys(repr(name[:60]) for name in [*types, *classes])) or "nothing"
    if all(text.has(name) for name in _PLAIN):
        whole.warn(f"no known family for {found}: read as a Llama-like model")
        return FALLBACK
    hint = did_you_mean(types[0], BY_TYPE) if types else ""
    known = ", ".join(sorted(BY_TYPE))
    whole.fault("model_type", f"no known family for {found}{hint}; known are {known}")
    return FALLBACK


def _tied(whole: Fields, text: Fields, family: Family) -> bool:
    """Whether lm_head is the embedding: the inner level, then the outer, then the class default."""
    outer = whole.flag("tie_word_embeddings", family.tied)
    inner = text.flag("tie_word_embeddings", outer)
    if text.has("tie_word_embeddings") and whole.has("tie_word_embeddings") and inner != outer:
        whole.warn(f"tie_word_embeddings is {inner} inside text_config and {outer} outside of it")
    return inner


def _report_unknown(whole: Fields, text: Fields, strict: bool) -> None:
    """Warn of fields that nobody understood; of a family nobody knows, refuse them."""
    unknown = sorted(set(whole.unasked()) | set(text.unasked()))
    if unknown:
        shown = ", ".join(unknown[:20]) + (" ..." if len(unknown) > 20 else "")
        message = f"fields that are not understood and may change the cost: {shown}"
        if strict:
            whole.fault("model_type", f"is of no known family, with {message}")
        else:
            whole.warn(message)


def _counted(kinds: Iterable[_Kind | None]) -> tuple[tuple[_Kind, int], ...]:
    """Each kind with the number of layers that use it, in order of first use."""
    counts: dict[_Kind, int] = {}
    for kind in kinds:
        if kind is not None:
            counts[kind] = counts.get(kind, 0) + 1
    return tuple(counts.items())


def _draft(body: Body, quant: Quantization) -> DraftLayers | None:
    if not body.draft:
        return None
    mixers: tuple[tuple[Mixer, int], ...] = _counted(layer.mixer for layer in body.draft)
    mlps: tuple[tuple[Mlp, int], ...] = _counted(layer.mlp for layer in body.draft)
    return DraftLayers(
        n_layers=body.draft_modules,
        mixers=mixers,
        mlps=mlps,
        extra_linears=body.draft_linears,
        other_parameters=body.draft_other_parameters + _others(body.draft),
        formats=draft_formats(body, quant),
    )


def _others(layers: list[Layer]) -> int:
    return sum(layer.other_parameters for layer in layers)
