"""Weight formats of a model's parts, averaged over the modules that make them up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dse.arch.blocks import Body, Layer
from dse.arch.quant import Quantization
from dse.arch.types import Dtype, Linear, Moe, Part, WeightFormat

_EMBEDDING = ("embed_tokens", "embeddings", "embed")
_HEAD = ("lm_head", "head")


@dataclass(slots=True)
class _Tally:
    """Bytes of one part so far, and parameters by stored format."""

    bytes: float = 0.0
    parameters: dict[WeightFormat, int] = field(default_factory=dict)

    def add(self, weight_format: WeightFormat, weights: int, wide: int, wide_bytes: float) -> None:
        self.bytes += weights * weight_format.bytes_per_parameter + wide * wide_bytes
        self.parameters[weight_format] = self.parameters.get(weight_format, 0) + weights + wide

    def result(self) -> WeightFormat:
        """The format of most parameters, with the bytes per parameter of them all."""
        main = max(self.parameters, key=lambda f: self.parameters[f])
        total = sum(self.parameters.values())
        if len(self.parameters) == 1 and self.bytes == total * main.bytes_per_parameter:
            return main
        return WeightFormat(main.dtype, self.bytes / total, main.activation_dtype)


def part_formats(body: Body, quant: Quantization) -> dict[Part, WeightFormat]:
    """Format of every part of the model proper; biases stay wide."""
    tallies: dict[Part, _Tally] = {}
    for i, layer in enumerate(body.layers):
        _add_layer(tallies, layer, (f"layers.{i}.",), quant)
    formats = {part: tally.result() for part, tally in tallies.items()}
    formats["embedding"] = quant.format_of("embedding", _EMBEDDING, True)
    formats["head"] = quant.format_of("head", _HEAD, True)
    formats["norm"] = quant.wide
    return formats


def draft_formats(body: Body, quant: Quantization) -> dict[Part, WeightFormat]:
    """Format of every part of the draft layers, which checkpoints often keep wider."""
    tallies: dict[Part, _Tally] = {}
    n = len(body.layers)
    for j, layer in enumerate(body.draft):
        prefixes = (f"layers.{n + j}.", f"mtp.layers.{j}.", f"mtp.{j}.")
        _add_layer(tallies, layer, prefixes, quant)
    for linear in body.draft_linears:
        _add_linear(tallies, linear, (f"layers.{n}.", "mtp.", "mtp.0."), quant)
    return {part: tally.result() for part, tally in tallies.items()}


def activation_dtype(formats: Iterable[WeightFormat]) -> Dtype:
    """Dtype that the checkpoint's widest quantized products use: the first that is not bf16."""
    found = {weight_format.activation_dtype for weight_format in formats}
    order: tuple[Dtype, ...] = ("fp8", "int8", "nvfp4", "mxfp4", "int4")
    return next((dtype for dtype in order if dtype in found), "bf16")


def _add_layer(
    tallies: dict[Part, _Tally], layer: Layer, prefixes: tuple[str, ...], quant: Quantization
) -> None:
    for linears in (layer.mixer, layer.mlp):
        for linear in linears.linears if linears is not None else ():
            _add_linear(tallies, linear, prefixes, quant)
    if isinstance(layer.mlp, Moe):
        moe = layer.mlp
        names = tuple(prefix + moe.path for prefix in prefixes)
        stored = quant.format_of("expert", names, True)
        biases = moe.n_experts * moe.bias_per_expert
        weights = moe.n_experts * moe.parameters_per_expert - biases
        tally = tallies.setdefault("expert", _Tally())
        tally.add(stored, weights, biases, quant.wide.bytes_per_parameter)


def _add_linear(
    tallies: dict[Part, _Tally], linear: Linear, prefixes: tuple[str, ...], quant: Quantization
) -> None:
    names = tuple(prefix + linear.path for prefix in prefixes)
    stored = quant.format_of(linear.part, names, linear.quantizable)
    tally = tallies.setdefault(linear.part, _Tally())
    tally.add(stored, linear.parameters - linear.bias, linear.bias, quant.wide.bytes_per_parameter)
