"""SGLang's `bench_serving --output-file`: one object a line, latencies in milliseconds.

Its TPOT is (latency - TTFT) / (output tokens - 1), mean over requests; output tokens are those that
were asked for where the server does not count them. Without streaming TTFT is the whole latency.
"""

from __future__ import annotations

from typing import Final

from dse.calibrate.clients.measured import MS, Client, Lengths, Load, Measured, require
from dse.calibrate.clients.source import Node
from dse.calibrate.clients.vllm import load_of, spread_of

# By how much the tokens of the text that came back may differ from those asked for.
_RETOKENIZED_FRAC: Final = 0.05


def read(node: Node) -> list[Measured]:
    """The run of a line."""
    completed = node.number("completed")
    total_in, total_out = node.number("total_input_tokens"), node.number("total_output_tokens")
    ttft, tpot = node.number("mean_ttft_ms", scale=MS), node.number("mean_tpot_ms", scale=MS)
    require(node)
    asked = _sent(node)
    load = load_of(node, completed if asked is None else asked)
    server = node.child("server_info")
    return [
        Measured(
            source=node.file,
            client="sglang bench_serving",
            model=server.text("served_model_name") or server.text("model_path"),
            load=load,
            completed=int(completed),
            failed=int(max((asked or 0.0) - completed, 0.0)),
            isl=Lengths(total_in / completed, spread_of(node.data.get("input_lens"))),
            osl=Lengths(total_out / completed, spread_of(node.data.get("output_lens"))),
            ttft_mean_s=ttft,
            tpot_mean_s=tpot,
            ttft_median_s=node.optional("median_ttft_ms", scale=MS),
            tpot_median_s=node.optional("median_tpot_ms", scale=MS),
            requests_per_s=node.optional("request_throughput"),
            e2e_mean_s=node.optional("mean_e2e_latency_ms", scale=MS),
            engine_version=server.text("version"),
            accelerators=_accelerators(server),
            notes=tuple(_notes(node, total_out, asked, load)),
        )
    ]


def _sent(node: Node) -> float | None:
    """Requests that were sent: only a detailed file (`--output-details`) tells."""
    errors = node.data.get("errors")
    return float(len(errors)) if isinstance(errors, list) else None


def _accelerators(server: Node) -> int | None:
    """Of one replica, as the server says: its tensor parallelism counts attention's data ranks."""
    tp, pp = server.optional("tp_size"), server.optional("pp_size") or 1.0
    return None if tp is None else int(tp * pp)


def _notes(node: Node, total_out: float, asked: float | None, load: Load) -> list[str]:
    notes = []
    again = node.optional("total_output_tokens_retokenized")
    if again and abs(again / total_out - 1.0) > _RETOKENIZED_FRAC:
        notes.append(
            f"{total_out:g} output tokens by the server's count or as asked for, {again:g} in the "
            "text that came back: TPOT divides by the former"
        )
    if asked is None:
        notes.append("the file does not say how many requests were sent: failures are unknown")
    accepted = node.optional("accept_length")
    if accepted is not None and accepted > 1.0:
        notes.append(
            f"the server drafts tokens ({accepted:.2f} accepted per step): the design needs "
            "draft_tokens"
        )
    if load.kind == "open" and load.concurrency is not None:
        notes.append(
            f"requests wait in the client for one of {load.concurrency:g} places, which its TTFT "
            "leaves out"
        )
    return notes


CLIENT: Final = Client(
    "sglang bench_serving",
    ("mean_e2e_latency_ms", "total_output_tokens_retokenized", "mean_ttft_ms"),
    read,
)
