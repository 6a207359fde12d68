"""Files: JSON with clear errors, and writing so that an interrupted job leaves nothing half-written."""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairseq_tn.errors import UserError


def _temporary_name(path: Path) -> str:
    return f".{path.name}.{os.getpid()}."


@contextlib.contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; it becomes ``path`` when the block ends without an error.

    Whatever is written to the temporary file is removed when the block raises, Ctrl-C included. A symbolic link
    stays, and the file that it names is replaced.

    Raises UserError for a device or a pipe: renaming would put a file in the place of a device such as
    ``/dev/null``.
    """
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UserError(f"{path} is a device or pipe, which cannot be replaced; name a file to write")
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=_temporary_name(path), dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``path``; its files move into ``path`` when the block ends without an error.

    Files that ``path`` holds already under other names stay.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=_temporary_name(path), dir=path.parent))
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o777 & ~umask)
        if path.exists():
            for item in sorted(temporary.iterdir()):
                target = path / item.name
                if target.is_dir():
                    shutil.rmtree(target)
                os.replace(item, target)
        else:
            os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_json(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds; UserError if the file is missing or broken."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text; get the file again") from None
    except json.JSONDecodeError as error:
        raise UserError(
            f"{path} is broken JSON (line {error.lineno}: {error.msg}); get the file again"
        ) from None
    except RecursionError:
        raise UserError(f"{path} is broken JSON (nested too deeply); get the file again") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} does not hold a JSON object; get the file again")
    return content
