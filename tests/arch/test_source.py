"""Files: where they may be, what they may hold, and faults that point into them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dse.arch import load_model
from dse.errors import DseError, SpecError
from tests.arch.samples import LLAMA


def write(folder: Path, text: str, name: str = "config.json") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_or_its_directory(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps(LLAMA))
    assert load_model(path) == load_model(tmp_path) == load_model(str(path))
    assert load_model(path).name == tmp_path.name


def test_a_file_of_another_name_is_named_after_it(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps(LLAMA), "acme--Tiny-1B_config.json")
    assert load_model(path).name == "acme/Tiny-1B"


def test_a_folder_of_the_hubs_cache_is_named_after_the_model(tmp_path: Path) -> None:
    folder = tmp_path / "models--acme--Tiny-1B" / "snapshots" / "0123"
    folder.mkdir(parents=True)
    write(folder, json.dumps(LLAMA))
    assert load_model(folder).name == "acme/Tiny-1B"


def test_the_sidecar_beside_it_is_read(tmp_path: Path) -> None:
    write(tmp_path, json.dumps(LLAMA))
    sidecar = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    write(tmp_path, json.dumps(sidecar), "hf_quant_config.json")
    assert load_model(tmp_path).formats["mlp"].dtype == "fp8"
    write(tmp_path, "{", "hf_quant_config.json")
    with pytest.raises(SpecError, match=r"hf_quant_config\.json:1:\d+: is not JSON"):
        load_model(tmp_path)


def test_infinity_and_a_byte_order_mark_are_accepted(tmp_path: Path) -> None:
    text = json.dumps({**LLAMA, "time_step_limit": [0.0, float("inf")]})
    path = tmp_path / "config.json"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert load_model(path).hidden == 512


def test_faults_point_at_the_line(tmp_path: Path) -> None:
    bad = {**LLAMA, "hidden_size": -4}
    path = write(tmp_path, json.dumps(bad, indent=2))
    with pytest.raises(SpecError) as caught:
        load_model(path)
    (fault,) = [f for f in caught.value.faults if f.path == "hidden_size"]
    assert fault.file == str(path)
    line = path.read_text().splitlines()[(fault.line or 0) - 1]
    assert '"hidden_size"' in line
    assert line[(fault.column or 0) - 1 :].startswith('"hidden_size"')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[1]", "expected an object"),
        ('{"a": 1, "a": 2}', "a: stands twice"),
        ('{"hidden_size": ' + "9" * 6000 + "}", "too many digits"),
        ("[" * 100_000, "nested too deeply|is not JSON"),
    ],
)
def test_what_is_no_config_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load_model(write(tmp_path, text))


def test_a_file_of_more_than_5_mb_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps({**LLAMA, "x": "y" * 5_000_000}))
    with pytest.raises(SpecError, match="at most 5000000"):
        load_model(path)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="UTF-8"):
        load_model(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    os.mkfifo(path)
    with pytest.raises(SpecError, match="not a regular file"):
        load_model(path)


@pytest.mark.parametrize("name", ["no/such/dir/config.json", "./nothing", "/nothing/at/all"])
def test_a_missing_path_says_so(name: str) -> None:
    with pytest.raises(SpecError, match="no such file or directory"):
        load_model(name)


def test_a_directory_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        load_model(tmp_path)


@pytest.mark.parametrize("name", ["", " ", "a\0b", "x" * 100_000, "a/b/c", "\n", "..", "//"])
def test_strange_names_are_dse_errors(name: str) -> None:
    with pytest.raises(DseError) as caught:
        load_model(name)
    assert len(str(caught.value)) < 2000
