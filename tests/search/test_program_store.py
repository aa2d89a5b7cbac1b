"""Programs kept on disk run as those that are traced; anything odd in the store is no program."""

from __future__ import annotations

import os
import threading
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.search import exact, interpret, program_store, programs
from dse.search.exact import price_designs
from dse.search.interpret import Program
from dse.search.numpy_source import Source, function_of
from dse.search.program_store import document_of, key_of, load, save, source_in
from dse.search.tree_text import UnknownStructureError
from dse.serving.evaluate import front_capacity, standing
from dse.smooth import power_sum
from tests.search.samples import problem_of

PROBLEM = problem_of(replicas="[1,2]", chunk_tokens="[1024]")
CHOSEN = [int(i) for i in np.linspace(0, PROBLEM.grid.size - 1, 20)]
KEY = "a key"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty store, that of all tests put back afterwards."""
    monkeypatch.setattr(program_store, "_folder", None)
    monkeypatch.setattr(program_store, "_origin", lambda: "as it is")
    monkeypatch.setattr(programs, "_programs", {})
    program_store.keep_in(tmp_path / "programs")
    return tmp_path / "programs"


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is traced from here on."""
    seen: list[Any] = []
    trace = interpret.trace

    def counted(function: Any, *args: Any) -> Any:
        seen.append(function)
        return trace(function, *args)

    monkeypatch.setattr(interpret, "trace", counted)
    return seen


def bits(tree: Any) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.dtype, leaf.shape, leaf.tobytes()) for leaf in leaves]


def another_process() -> None:
    """Forgets all programs that this one has made."""
    programs._programs.clear()


def test_kept_programs_give_the_same_bits(store: Path, traces: list[Any]) -> None:
    def all_of_it() -> list[Any]:
        another_process()
        return [
            bits(exact.score_designs(PROBLEM, CHOSEN)),
            bits(exact.rates(PROBLEM, CHOSEN)),
            bits(price_designs(PROBLEM, CHOSEN)),
        ]

    exact.score_designs(PROBLEM, CHOSEN)
    assert len(traces) == 1
    first = all_of_it()  # the scores as they were kept, other parts of the program anew
    assert len(traces) == 2
    assert all_of_it() == first
    assert len(traces) == 2
    program_store.keep_in(None)
    assert all_of_it() == first
    assert len(traces) == 3


def summed() -> Any:
    """A small program of this package, run on arrays of two."""
    given = np.asarray([1.0, 2.0]), np.asarray([4.0, 0.0])
    [found] = Program(power_sum, given, (3.0,)).run(*given)
    return bits(found)


def changed(written: bytes) -> list[bytes]:
    half = len(written) // 2
    return [
        b"",
        written[:half],
        written[:-1],
        written + b"0",
        written[:half] + bytes([written[half] ^ 1]) + written[half + 1 :],
        b"print('mine')",
        bytes(len(written)),
    ]


def test_a_file_that_is_not_whole_is_refused_and_written_again(
    store: Path, traces: list[Any]
) -> None:
    expected = summed()
    files = {path: path.read_bytes() for path in store.iterdir()}
    assert len(files) == 2  # its structure and its text
    for path, whole in files.items():
        for wrong in changed(whole):
            traces.clear()
            path.write_bytes(wrong)
            assert summed() == expected
            assert len(traces) == 1
            assert path.read_bytes() == whole


def test_a_file_under_another_name_is_refused(store: Path, traces: list[Any]) -> None:
    expected = summed()
    one, other = sorted(store.iterdir())
    one_holds, other_holds = one.read_bytes(), other.read_bytes()
    one.write_bytes(other_holds)
    other.write_bytes(one_holds)
    assert summed() == expected
    assert len(traces) == 2
    assert (one.read_bytes(), other.read_bytes()) == (one_holds, other_holds)


@pytest.mark.parametrize(
    "document", [None, [], {}, {"text": "def f(N): return [N]", "name": "f", "constants": 3}]
)
def test_a_document_of_no_program_is_refused(store: Path, traces: list[Any], document: Any) -> None:
    expected = summed()
    key = key_of(power_sum, (3.0,), (np.zeros(2), np.zeros(2)))
    for part in ("1", "structure"):
        save(key, part, document)
        assert summed() == expected
    assert len(traces) == 3


def test_files_are_for_their_owner_alone(store: Path) -> None:
    summed()
    assert store.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in store.iterdir()} == {0o600}


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the system knows no owners")
def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path, store: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    for mode, used in ((0o770, False), (0o707, False), (0o755, True)):
        shared.chmod(mode)
        program_store.keep_in(shared)
        summed()
        assert any(shared.iterdir()) == used


def test_a_place_that_cannot_be_used_is_no_error(tmp_path: Path, store: Path) -> None:
    expected = summed()
    (tmp_path / "occupied").write_text("")
    program_store.keep_in(tmp_path / "occupied" / "below")
    assert summed() == expected
    program_store.keep_in(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert summed() == expected


def test_nothing_is_kept_unless_asked(store: Path, traces: list[Any]) -> None:
    program_store.keep_in(None)
    expected = summed()
    assert summed() == expected
    assert len(traces) == 2
    assert not any(store.iterdir())


def test_readers_meet_whole_files_while_others_write(store: Path) -> None:
    documents = [{"of": i, "much": "x" * 100_000} for i in range(4)]
    odd = []

    def write(document: Any) -> None:
        for _ in range(25):
            save(KEY, "part", document)

    def read() -> None:
        for _ in range(100):
            found = load(KEY, "part")
            if found is not None and found not in documents:
                odd.append(found)

    threads = [threading.Thread(target=write, args=(one,)) for one in documents]
    threads += [threading.Thread(target=read) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not odd
    assert load(KEY, "part") in documents
    assert len(list(store.iterdir())) == 1


def test_what_was_not_used_for_longest_goes(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_store, "_MOST_FILES", 3)
    for i in range(3):
        save(KEY, str(i), i)
        os.utime(program_store._path(store, KEY, str(i)), (i, i))
    assert load(KEY, "0") == 0  # used again
    save(KEY, "3", 3)
    assert [load(KEY, str(i)) for i in range(4)] == [0, None, 2, 3]


# ---------------------------------------------------------------- what a program depends on
def test_a_key_tells_apart_all_that_a_program_depends_on(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = np.zeros(2)
    keys = [
        key_of(power_sum, (), (one, one)),
        key_of(power_sum, (), (one, one, one)),
        key_of(power_sum, (), ((one, one),)),
        key_of(power_sum, (), (np.zeros(3), one)),
        key_of(power_sum, (), (np.zeros((2, 1)), one)),
        key_of(power_sum, (), (one.astype(np.float32), one)),
        key_of(power_sum, (), (one.astype(np.int64), one)),
        key_of(power_sum, (), (np.float64(1.0), one)),
        key_of(power_sum, (), (1.0, one)),  # weakly typed
        key_of(power_sum, (), (1, one)),
        key_of(power_sum, (), (programs.of_any_number(one), one)),
        key_of(power_sum, ("a",), (one, one)),
        key_of(power_sum, (("a",),), (one, one)),
        key_of(power_sum, (standing,), (one, one)),
        key_of(power_sum, (front_capacity,), (one, one)),
        key_of(standing, (), (one, one)),
        key_of(power_sum, (), (PROBLEM.system, one)),
    ]
    monkeypatch.setattr(program_store, "_origin", lambda: "another version")
    keys.append(key_of(power_sum, (), (one, one)))
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_a_key_is_the_same_for_other_numbers(store: Path) -> None:
    keys = {key_of(power_sum, (), (np.full(2, x), np.float64(x))) for x in (0.0, 1.5)}
    assert len(keys) == 1


def of_a_test(x: Any) -> Any:
    return x


def test_functions_that_are_not_found_in_the_package_have_no_key(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert key_of(of_a_test, (), (1.0,)) is None
    assert key_of(lambda x: x, (), (1.0,)) is None
    assert key_of(power_sum, (of_a_test,), (1.0,)) is None
    assert key_of(power_sum, (object(),), (1.0,)) is None
    own = power_sum
    monkeypatch.setattr("dse.smooth.power_sum", of_a_test)
    assert key_of(own, (), (1.0,)) is None


def test_the_origin_is_that_of_the_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    origin = program_store._origin.__wrapped__
    monkeypatch.setattr("dse.__file__", str(tmp_path / "__init__.py"))
    assert origin() is None  # nothing there
    (tmp_path / "__init__.py").write_text("ONE = 1\n")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "other.py").write_text("")
    assert origin() is None  # younger than this process: it may have loaded what was there before

    def found(name: str, text: str) -> str | None:
        (tmp_path / name).write_text(text)
        for path in tmp_path.rglob("*.py"):
            os.utime(path, (1.0, 1.0))
        return origin()

    first = found("__init__.py", "ONE = 1\n")
    assert first is not None
    assert found("__init__.py", "ONE = 1\n") == first
    assert found("__init__.py", "ONE = 2\n") != first
    assert found("__init__.py", "ONE = 1\n") == first
    assert found("inner/other.py", "TWO = 2\n") != first
    assert found("inner/other.py", "") == first
    (tmp_path / "inner" / "other.py").rename(tmp_path / "inner" / "another.py")
    assert origin() != first
    monkeypatch.setattr(program_store, "version", lambda name: f"another {name}")
    (tmp_path / "inner" / "another.py").rename(tmp_path / "inner" / "other.py")
    assert origin() != first

    def unknown(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(program_store, "version", unknown)
    assert origin() is None


# ---------------------------------------------------------------- programs as documents
CONSTANTS: dict[str, Any] = {
    "number": np.float64(0.1),
    "negative zero": np.float64(-0.0),
    "not a number": np.float64("nan"),
    "single": np.float32(0.1),
    "whole": np.int32(-3),
    "truth": np.bool_(True),
    "array": np.arange(6.0).reshape(2, 3).T,
    "array of none": np.zeros((0, 3), np.int64),
    "array of no axes": np.asarray(2.5),
    "dtype": np.dtype("float32"),
    "slices": (slice(None), slice(1, 3), slice(0, 6, 2), slice(np.int64(1), np.int64(2))),
}


@pytest.mark.parametrize("name", list(CONSTANTS))
def test_a_constant_survives_to_the_bit(name: str, store: Path) -> None:
    value = CONSTANTS[name]
    save(KEY, name, document_of(Source("", "f", {"k": value}, {})))
    found = source_in(load(KEY, name)).constants["k"]
    assert type(found) is type(value)
    if isinstance(value, np.ndarray | np.generic):
        assert (found.dtype, found.shape) == (value.dtype, value.shape)
        assert found.tobytes() == value.tobytes()
    else:
        assert found == value


@pytest.mark.parametrize("value", [object(), np.sin, (1, 2), np.asarray(["a"]), np.dtype("O")])
def test_no_other_constant_is_written(value: Any) -> None:
    with pytest.raises(UnknownStructureError):
        document_of(Source("", "f", {"k": value}, {}))


def test_a_program_that_needs_jax_is_not_kept_and_runs(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sorted_sum(x: Any) -> Any:
        return jnp.cumsum(jnp.sort(x))

    monkeypatch.setattr(program_store, "key_of", lambda *_: KEY)
    given = np.asarray([3.0, 1.0, 2.0])
    for _ in range(2):
        [found] = Program(sorted_sum, (given,)).run(given)
        np.testing.assert_array_equal(found, [1.0, 3.0, 6.0])
    assert len(list(store.iterdir())) == 1  # its structure


def test_a_text_calls_nothing_but_what_rules_name() -> None:
    for call in ("open('x')", "__import__('os')", "eval('1')", "print(N)"):
        function = function_of(Source(f"def f(N): return [{call}]", "f", {}, {}), _never)
        with pytest.raises((NameError, ImportError)):
            function(1)


def _never(*_: Any) -> Any:
    raise AssertionError("nothing is left to jax")
