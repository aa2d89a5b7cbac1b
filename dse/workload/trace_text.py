"""The lines of a trace file, packed by gzip or not; what is no text is refused with its line."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final

from dse.errors import Fault, SpecError
from dse.spec.files import regular_file

MAX_LINE_BYTES: Final = 8_000_000

_MAGIC: Final = {
    b"PAR1": "a Parquet file; write it as CSV",
    b"PK\x03\x04": "a zip archive; unpack it",
    b"\x28\xb5\x2f\xfd": "packed by zstd; unpack it",
    b"\xfd7zXZ": "packed by xz; unpack it",
    b"BZh": "packed by bzip2; unpack it",
    b"\xff\xfe": "UTF-16 text; write it as UTF-8",
    b"\xfe\xff": "UTF-16 text; write it as UTF-8",
}


class TraceLines:
    """Lines with something on them, without their ends; comment lines (#) are left out.

    `numbers` grows by the number of every line given out; who reads in batches clears it.
    """

    def __init__(self, stream: IO[bytes], file: str) -> None:
        self.file = file
        self.numbers: list[int] = []
        self._stream = stream
        self._number = 0

    def __iter__(self) -> Iterator[str]:
        numbers = self.numbers
        for raw in self._raw():
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                found = f"found byte 0x{raw[error.start]:02x}; expected text in UTF-8"
                raise self.fault(found, column=error.start + 1) from None
            if "\0" in line:
                raise self.fault("found a NUL byte; expected text")
            if not line.startswith("#") and not line.isspace():
                numbers.append(self._number)
                yield line.rstrip("\r\n")

    def fault(self, message: str, line: int | None = None, column: int | None = None) -> SpecError:
        """An error at a line (the last one read)."""
        number = self._number if line is None else line
        return SpecError([Fault(self.file, number or None, column, "", message)])

    def _raw(self) -> Iterator[bytes]:
        try:
            while raw := self._stream.readline(MAX_LINE_BYTES + 1):
                self._number += 1
                if self._number == 1:
                    raw = raw.removeprefix(b"\xef\xbb\xbf")
                    self._refuse_binary(raw)
                if len(raw) > MAX_LINE_BYTES:
                    raise self.fault(f"a line of more than {MAX_LINE_BYTES / 1e6:g} MB")
                yield raw
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self.fault(f"the gzip data is damaged or cut short: {error}") from None
        except OSError as error:
            raise self.fault(f"cannot be read: {(error.strerror or str(error)).lower()}") from None

    def _refuse_binary(self, start: bytes) -> None:
        for magic, what in _MAGIC.items():
            if start.startswith(magic):
                raise SpecError.of(f"is {what}; expected CSV or JSONL", file=self.file)


@contextmanager
def open_trace(path: str | os.PathLike[str]) -> Iterator[TraceLines]:
    """The lines of a regular file. Raises SpecError for a folder, a missing file, a device."""
    with regular_file(path, "a trace, CSV or JSONL") as (file, _), open(path, "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if packed:
            with gzip.open(raw) as unpacked:
                yield TraceLines(unpacked, file)  # type: ignore[arg-type]
        else:
            yield TraceLines(raw, file)
