"""``fairseq-tn doctor``: what is missing fails it only if the main job needs it."""

import json
import re
from importlib import metadata
from pathlib import Path

import pytest

import fairseq_tn
from fairseq_tn.cli import main
from fairseq_tn.cli.doctor import LIBRARIES

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # fairseq's use of hydra


@pytest.fixture
def without(monkeypatch):
    """Make distributions look as if they were not installed."""
    absent = set()
    installed = metadata.version

    def version(name: str) -> str:
        if name in absent:
            raise metadata.PackageNotFoundError(name)
        return installed(name)

    monkeypatch.setattr(metadata, "version", version)
    return absent.add


def test_all_is_well_where_the_tests_run(capsys):
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "fairseq-tn doctor: pre-training can run on this machine"
    assert [name for name in LIBRARIES if not any(f"ok {name} " in line for line in lines)] == []
    plugin = fairseq_tn.__file__.removesuffix("__init__.py")
    for kind, folder in (("tasks", "tasks"), ("criterions", "criterions")):
        (line,) = (line for line in lines if f"ok {kind} " in line)
        source = "".join(path.read_text() for path in Path(plugin, folder).glob("*.py"))
        registered = re.findall(rf'@register_{folder.rstrip("s")}\(\s*"(\w+)"', source)
        assert sorted(line.split(None, 2)[2].split(", ")) == sorted(registered)
    assert any("ok architectures" in line and "tn_electra_small" in line for line in lines)


@pytest.mark.parametrize(("library", "status"), [("subword-nmt", 0), ("matplotlib", 1), ("tokenizers", 1)])
def test_a_missing_library_is_named_with_its_remedy(without, capsys, library, status):
    without(library)
    assert main(["doctor", "--json"]) == status
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] == (status == 0)
    (check,) = [check for check in answer["checks"] if check["name"] == library]
    assert check["missing"].startswith(f"pip install {library}")
