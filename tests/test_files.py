"""Atomic writing: all of a file or folder, or nothing."""

import os
import stat

import pytest

from fairseq_tn.errors import UserError
from fairseq_tn.files import atomic_folder, atomic_path


def test_a_file_appears_whole_with_ordinary_permissions(tmp_path):
    target = tmp_path / "new" / "file"
    with atomic_path(target) as temporary:
        temporary.write_text("half")
        assert not target.exists()
        temporary.write_text("whole")
    assert target.read_text() == "whole"
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask
    assert os.listdir(target.parent) == ["file"]


def write_half(target, error):
    with atomic_path(target) as temporary:
        temporary.write_text("half")
        raise error


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_interrupted_file_leaves_what_was_there(tmp_path, error):
    target = tmp_path / "file"
    target.write_text("before")
    with pytest.raises(error):
        write_half(target, error)
    assert target.read_text() == "before"
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_replaces_its_own_files_and_keeps_others(tmp_path):
    target = tmp_path / "folder"
    for text in ("first", "second"):
        with atomic_folder(target) as temporary:
            (temporary / "a").write_text(text)
            (temporary / "sub").mkdir()
            (temporary / "sub" / text).write_text(text)
        (target / "other").write_text("kept")
    assert (target / "a").read_text() == "second"
    assert os.listdir(target / "sub") == ["second"]
    assert (target / "other").read_text() == "kept"
    assert os.listdir(tmp_path) == ["folder"]


def test_an_interrupted_folder_leaves_nothing(tmp_path):
    def fail():
        with atomic_folder(tmp_path / "folder") as temporary:
            (temporary / "a").write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert os.listdir(tmp_path) == []


def test_a_pipe_is_refused_and_stays(tmp_path):
    target = tmp_path / "pipe"
    os.mkfifo(target)
    link = tmp_path / "link"
    link.symlink_to(target)
    for path in (target, link):
        with pytest.raises(UserError, match="pipe"):
            write_half(path, AssertionError("the block must not run"))
    assert stat.S_ISFIFO(target.stat().st_mode)
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_the_file_that_it_names_is_written(tmp_path, exists):
    target, link = tmp_path / "elsewhere" / "file", tmp_path / "link"
    target.parent.mkdir()
    if exists:
        target.write_text("before")
    link.symlink_to(target)
    with atomic_path(link) as temporary:
        temporary.write_text("whole")
    assert link.is_symlink()
    assert target.read_text() == "whole"
