"""Reading plain, gzip and bzip2 files as streams of bytes, with the position in the file on disk."""

import bz2
import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path

from fairseq_tn.errors import UserError

BLOCK_BYTES = 1 << 18


def file_size(path: str | Path) -> int:
    """The bytes of a file; 0 for what is none."""
    return Path(path).stat().st_size if Path(path).is_file() else 0


class InputStream(io.RawIOBase):
    """The decompressed bytes of a file; the compression is recognised by the file's first bytes.

    Files of several gzip or bzip2 streams one after the other are read to the end. ``size`` is the number of
    bytes on disk (0 for a pipe) and ``position()`` how many of them are read.

    Raises UserError when the file is missing, no file, empty or (while reading) truncated or damaged.
    """

    def __init__(self, path: str | Path):
        super().__init__()
        self.path = Path(path)
        if not self.path.exists():
            raise UserError(f"{path} does not exist; give an input file")
        if self.path.is_dir():
            raise UserError(f"{path} is a folder; give a file")
        try:
            self._file = io.BufferedReader(io.FileIO(self.path), BLOCK_BYTES)
            head = self._file.peek(3)[:3]
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from None
        if not head:
            self._file.close()
            raise UserError(f"{path} is empty")
        self.size = self.path.stat().st_size
        self._stream: io.BufferedIOBase = self._file
        if head[:2] == b"\x1f\x8b":
            self._stream = gzip.GzipFile(fileobj=self._file)
        elif head == b"BZh":
            self._stream = bz2.BZ2File(self._file)

    def position(self) -> int:
        return self._file.tell() if self._file.seekable() else 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        try:
            return self._stream.read(size)
        except EOFError:
            raise UserError(
                f"{self.path} is truncated: its compressed data end too early; get it again"
            ) from None
        except (OSError, zlib.error) as error:
            raise UserError(f"{self.path} is damaged ({error}); get it again") from None

    def readinto(self, buffer) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            with contextlib.suppress(EOFError):
                self._stream.close()
            self._file.close()
        super().close()

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        r"""Yield (number of the first line, from 1; some whole lines), about ``BLOCK_BYTES`` each.

        Only ``\n`` ends a line. The last line may lack it.
        """
        line = 1
        parts: list[bytes] = []
        while data := self.read(BLOCK_BYTES):
            cut = data.rfind(b"\n") + 1
            if not cut:
                parts.append(data)
                continue
            block = b"".join([*parts, data[:cut]])
            yield line, block
            line += block.count(b"\n")
            parts = [data[cut:]] if cut < len(data) else []
        if parts:
            yield line, b"".join(parts)
        elif line == 1:
            raise UserError(f"{self.path} is empty")
