"""Whole exports, file by file, against goldens; YAML as others parse it.

DSE_UPDATE_GOLDEN=1 writes the goldens anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from dse.errors import DseError
from dse.export.exported import export
from dse.export.manifests import object_name

GOLDEN = Path(__file__).parent / "golden"
FORMS = [
    ("vllm", "pools", "vllm"),
    ("sglang", "pools", "sglang"),
    ("tensorrt-llm", "pools", "tensorrt-llm"),
    ("dynamo", "pools", "vllm"),
    ("kubernetes", "dense", "vllm"),
]


@pytest.mark.parametrize(("form", "name", "engine"), FORMS)
def test_golden(priced: Any, form: str, name: str, engine: str) -> None:
    found = export(priced(name, engine), form)
    told = [*found.not_expressed, *found.notes]
    files = {**found.files, "told.txt": "".join(f"{text}\n" for text in told)}
    del files["feed_back.py"]
    text = "".join(f"==== {name}\n{files[name]}" for name in sorted(files))
    path = GOLDEN / f"{form}.txt"
    if os.environ.get("DSE_UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text


def test_yaml_is_parsed_back(priced: Any) -> None:
    hostile = "y: [a] 'b' \"c\" # {{d}} on"
    graph = yaml.safe_load(
        export(priced("pools", "vllm"), "dynamo", checkpoint=hostile).files["dynamo.yaml"]
    )
    components = {one["name"]: one for one in graph["spec"]["components"]}
    assert components["decode"]["multinode"] == {"nodeCount": 2}
    assert components["prefill"]["replicas"] == 2
    for name in ("prefill", "decode"):
        [container] = components[name]["podTemplate"]["spec"]["containers"]
        assert container["args"][3] == hostile
        assert all(isinstance(word, str) for word in container["args"])
        assert container["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    objects = list(
        yaml.safe_load_all(
            export(priced("dense", "vllm"), "kubernetes", checkpoint=hostile).files[
                "kubernetes.yaml"
            ]
        )
    )
    assert [one["kind"] for one in objects] == ["Deployment", "Service"]
    assert objects[0]["spec"]["template"]["spec"]["containers"][0]["args"][0] == hostile
    assert objects[0]["metadata"]["name"] == objects[1]["metadata"]["name"]


def test_dynamo_carries_its_engines(priced: Any) -> None:
    assert export(priced("dense", "vllm"), "dynamo").version == "0.31.0"
    with pytest.raises(DseError, match="never read"):
        export(priced("dense", "vllm"), "dynamo", version="1.0.0")


def test_tensorrt_keys(priced: Any) -> None:
    found = export(priced("pools", "tensorrt-llm"), "tensorrt-llm")
    decode = yaml.safe_load(found.files["decode.yaml"])
    assert decode["max_batch_size"] == 64
    assert decode["max_num_tokens"] == 8192 + 64 * 3
    assert decode["enable_attention_dp"] is True
    assert decode["speculative_config"] == {"decoding_type": "MTP", "max_draft_len": 2}
    assert decode["kv_cache_config"]["free_gpu_memory_fraction"] == 0.9
    assert yaml.safe_load(found.files["prefill.yaml"])["disable_overlap_scheduler"] is True
    old = export(priced("pools", "tensorrt-llm"), "tensorrt-llm", version="1.2")
    drafts = yaml.safe_load(old.files["decode.yaml"])["speculative_config"]
    assert drafts == {"decoding_type": "MTP", "num_nextn_predict_layers": 2}
    servers = yaml.safe_load(found.files["disaggregated.yaml"])
    assert servers["context_servers"]["num_instances"] == 2


def test_wide_servers_are_no_plain_deployment(priced: Any) -> None:
    with pytest.raises(DseError, match="spans hosts of 8"):
        export(priced("pools", "vllm"), "kubernetes")
    assert object_name("A/b_C.d'; rm -rf") == "dse-b-c-d-rm-rf"
    assert object_name("---") == "dse-model"


def test_the_document_is_json(priced: Any) -> None:
    found = export(priced("dense", "vllm"), "vllm").to_json()
    assert json.loads(json.dumps(found))["schema"] == "dse.export/1"
