"""Makes the figures of docs/figures anew, light and dark: `python docs/figures.py [FOLDER]`."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from PIL import Image

from dse.explain import Subject, explain
from dse.report.atomic import write_bytes
from dse.report.style import COLOURS, Theme, render
from dse.report.sweep_figures import chunk_figure, split_figure
from dse.report.sweeps import GOODPUT, chunk_rows, split_rows
from dse.report.transfers import exposed_transfer
from dse.study import evaluate

_COMMON: dict[str, Any] = {
    "model": "Llama-3.1-70B",
    "hardware": "h100-sxm",
    "engine": {"name": "vllm", "deployments": "none"},
}
_FORMATS = {"weight_dtype": "fp8", "activation_dtype": "fp8", "kv_dtype": "fp8"}

# One replica of four H100, prompts of 4,096 tokens: the limit on TPOT varies.
CHUNKS = [2**i for i in range(7, 15)]
TPOT_LIMITS_S = [0.025, 0.035, 0.05, 0.1]
CHUNK_STUDY: dict[str, Any] = {
    "study": "chunk-size",
    **_COMMON,
    "workload": {"isl": {"mean": 4096, "cv": 0.8}, "osl": {"mean": 512, "cv": 0.7}},
    "objective": {"maximize": GOODPUT, "promises": {"ttft_p99": "4 s"}},
    "space": {"mode": "colocated", "attention_tp": 4, "max_batch": 256, **_FORMATS},
}

# Eight workers of four H100: 5,120 tokens a request in other shares, and links of other widths.
N_WORKERS = 8
RATIOS = {"16 : 1": 16.0, "8 : 1": 8.0, "4 : 1": 4.0, "2 : 1": 2.0}
LINKS = ("400 Gb/s", "10 Gb/s", "5 Gb/s", "2.5 Gb/s")
TOKENS = 5120.0
SPLIT_DESIGN: dict[str, Any] = {
    "mode": "disaggregated",
    "prefill": {"attention_tp": 4, "max_batch": 16, "chunk_tokens": 8192, **_FORMATS},
    "decode": {"attention_tp": 4, "max_batch": 256, "chunk_tokens": 8192, **_FORMATS},
}


def split_study(ratio: float, bandwidth: str) -> dict[str, Any]:
    """Two pools whose prompts are `ratio` times as long as the answers, over one kind of link."""
    output = TOKENS / (1.0 + ratio)
    return {
        "study": "split",
        **_COMMON,
        "workload": {
            "isl": {"mean": TOKENS - output, "cv": 0.5},
            "osl": {"mean": output, "cv": 0.5},
        },
        "objective": {"maximize": GOODPUT, "promises": {"ttft_p99": "5 s", "tpot_p99": "50 ms"}},
        "link": {"fabric": "scale_out", "bandwidth_bytes_per_s": bandwidth},
        "space": {"mode": "disaggregated"},
    }


def chunks() -> Callable[[Theme], Figure]:
    """Goodput over the chunk size, a line per limit on the 99th percentile of TPOT."""
    rows = chunk_rows(CHUNK_STUDY, CHUNKS, "tpot_p99", TPOT_LIMITS_S)
    return lambda theme: chunk_figure(rows, promise="tpot_p99", theme=theme)


def splits() -> Callable[[Theme], Figure]:
    """Goodput over the split of eight workers, by the share of prompts and by the link."""
    by_ratio = {name: split_study(ratio, LINKS[0]) for name, ratio in RATIOS.items()}
    by_link = {name: split_study(RATIOS["8 : 1"], name) for name in LINKS}
    panels = {
        f"By what is asked and answered ({LINKS[0]})": split_rows(
            by_ratio, SPLIT_DESIGN, N_WORKERS
        ),
        "By the link (8 : 1)": split_rows(by_link, SPLIT_DESIGN, N_WORKERS),
    }
    legends = ("Prompt : output", "Link of an accelerator")
    return lambda theme: split_figure(panels, legends=legends, theme=theme)


def transfers() -> Callable[[Theme], Figure]:
    """What moving a cache adds to the first token, over prompt lengths and fabrics."""
    split = {pool: {**SPLIT_DESIGN[pool], "workers": 4} for pool in ("prefill", "decode")}
    own_links = {**split_study(8.0, LINKS[0]), "link": {"fabric": "scale_out"}}
    found = evaluate(own_links, {**SPLIT_DESIGN, **split})
    resident = found.metrics["resident_requests"]
    rows = explain(Subject.of(found.study, found.hardware, resident))["transfers"]
    return lambda theme: exposed_transfer(rows, theme=theme)


FIGURES = {"chunk-size": chunks, "pool-split": splits, "cache-transfer": transfers}


def small(png: bytes) -> bytes:
    """The picture with 128 colours: a third of the bytes, and no eye sees it."""
    buffer = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(128).save(buffer, "png", optimize=True)
    return buffer.getvalue()


def main(folder: str = str(Path(__file__).parent / "figures"), *names: str) -> None:
    """Writes FOLDER/NAME.png and NAME-dark.png of all figures, or of those named."""
    for name in names or FIGURES:
        figure = FIGURES[name]()
        for theme in COLOURS:
            stem = name if theme == "light" else f"{name}-{theme}"
            print(write_bytes(Path(folder) / f"{stem}.png", small(render(figure(theme), "png"))))


if __name__ == "__main__":
    main(*sys.argv[1:])
