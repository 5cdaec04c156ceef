"""Input that means harm, and disks that give no room; what tests of folders and faults do not cover already."""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from nightly import some_nightly
from stored_study import recorded

from framework_compare import compare
from framework_compare.datasets.folder import read_folder
from framework_compare.errors import StudyError
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Run
from framework_compare.store.folder import FILE
from framework_compare.store.study_file import Store
from framework_compare.study.data_files import images_path

QUICK = dict(batch_size=4, epochs=1, threads=1, loader_workers=1, image_size=32)
NAMES = ["fire; rm -rf x", "smoke\nnext", "<b>'no' \"fire\"", "$(touch pwned)", "-rf", "日本"]


def renamed(images: Path, target: Path) -> Path:
    """The images in class folders whose names, and files' names, mean harm."""
    source = sorted((images / "fire").iterdir())[0]
    for name in NAMES:
        (target / name).mkdir(parents=True)
        for number in range(2):
            shutil.copy(source, target / name / f"{number} ; <i>\n'\".jpg")
    return target


def test_names_that_mean_harm_are_names(tiny, images, own_cache, tmp_path):
    data = renamed(images, tmp_path / "data; echo <u>")
    result = compare(tiny, "linear", dataset=data, out=tmp_path / "study", **QUICK)
    assert list(result.frame.status) == ["ok"] and result.frame.images[0] == 2 * len(NAMES)
    for style in ("markdown", "latex", "terminal", "csv"):
        assert "<u>" not in result.table(style=style) or style in ("terminal", "csv")
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize(
    "names",
    [("my pics", "my_pics"), ("日本", "中国"), ("x" * 90, "x" * 90 + "y"), ("Pics", "pics")],
    ids=["blank", "no-latin", "long", "case"],
)
def test_data_sets_whose_names_look_alike_keep_their_own_images(tiny, images, own_cache, tmp_path, names):
    for name, number in zip(names, (1, 3)):
        for label in ("fire", "smoke"):
            (tmp_path / name / label).mkdir(parents=True)
            for source in sorted((images / label).iterdir())[:number]:
                shutil.copy(source, tmp_path / name / label)
    result = compare(tiny, "linear", dataset=[tmp_path / name for name in names], out=tmp_path / "study", **QUICK)
    assert dict(zip(result.epochs.dataset, result.epochs.images)) == dict(zip(names, (2, 6)))
    paths = {images_path(tmp_path / "study", name).name.lower() for name in names}
    assert len(paths) == 2 and max(map(len, paths)) < 100


def test_a_data_set_whose_folder_has_a_name_that_is_no_text(tiny, images, own_cache, tmp_path):
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    try:
        shutil.copytree(images, folder)
    except OSError:
        pytest.skip("needs a file system that takes any bytes as a name")
    result = compare(tiny, "linear", dataset=folder, out=tmp_path / "study", **QUICK)
    assert list(result.frame.status) == ["ok"] and list(result.frame.dataset) == ["caf\ufffd"]
    assert "caf\ufffd" in str(result.table())


def test_verdicts_on_parity_that_cannot_be_written_are_told(tiny, images, own_cache, tmp_path):
    request = dict(dataset=images, out=tmp_path / "study", **QUICK)
    folder = compare(tiny, "linear", **request).folder
    (folder / "parity.json").unlink()
    (folder / "parity.json").mkdir()
    with Store.open(folder, readonly=False) as store:
        store.record(1, Run("interrupted"))
    with pytest.raises(StudyError, match="parity.json cannot be used: "):
        compare(tiny, "linear", **request)


@pytest.mark.parametrize("count", some_nightly([10_000, 50_000], nightly=[50_000]))
def test_a_class_folder_of_many_entries_is_read(tmp_path, images, own_cache, count):
    source = sorted((images / "fire").iterdir())[0]
    for label in ("fire", "smoke"):
        (tmp_path / "data" / label).mkdir(parents=True)
    for number in range(count):
        os.link(source, tmp_path / "data" / "fire" / f"{number}.jpg")
    for label in ("fire", "smoke"):
        os.link(source, tmp_path / "data" / label / "a.jpg")
    try:
        assert len(read_folder(tmp_path / "data").files) == count + 2
    finally:
        shutil.rmtree(tmp_path / "data")


def with_files_of_at_most(size: int, code: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run code where no file may grow beyond `size` bytes, as on a disk that is full."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, preexec_fn=limit)


def test_a_full_disk_is_told_and_what_was_there_stays(tmp_path):
    cells = [Cell("torch", "alexnet", "small", "cpu", TrainConfig(batch_size=n)) for n in (1, 2)]
    recorded(tmp_path / "study", cells, [Run("ok", "kept")])
    code = """if True:
        import sys
        from framework_compare.errors import StudyError
        from framework_compare.records import Run, Sample
        from framework_compare.store.study_file import Store
        store = Store.open(sys.argv[1], readonly=False)
        try:
            store.record(2, Run("ok", samples=tuple(Sample(n) for n in range(200_000))))
        except StudyError as error:
            print(error)
    """
    done = with_files_of_at_most(500_000, code, tmp_path / "study")
    assert f"{FILE} cannot be used" in done.stdout, done.stderr
    with Store.open(tmp_path / "study", readonly=False) as store:
        assert store.select("SELECT status, reason FROM run ORDER BY run_id") == [("ok", "kept"), ("planned", "")]
        assert store.select("PRAGMA integrity_check") == [("ok",)]


def test_initial_weights_that_do_not_fit_are_told_and_do_not_kill_the_parent(tmp_path):
    code = """if True:
        import sys
        from pathlib import Path
        from framework_compare.errors import StudyError
        from framework_compare.protocol import TrainConfig
        from framework_compare.plan.planning import build_graph
        from framework_compare.study.data_files import weights_path
        try:
            weights_path(Path(sys.argv[1]), build_graph("alexnet", TrainConfig()), 0)
        except StudyError as error:
            print("told:", error)
    """
    done = with_files_of_at_most(1_000_000, code, tmp_path)
    assert done.stdout.startswith("told:") and "alexnet" in done.stdout, done.stderr


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="needs root, to mount a tiny disk")
def test_a_study_on_a_disk_that_fills_up_stops_with_a_clear_line_and_goes_on_later(tiny, images, own_cache, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("needs a system that lets root mount a tmpfs")
    request = dict(dataset=images, out=disk / "study", **{**QUICK, "batch_size": list(range(1, 9))})
    try:
        (disk / "ballast").write_bytes(b"x" * 800_000)
        with pytest.raises(StudyError, match="No space left|full"):
            compare(tiny, "linear", **{**request, "batch_size": list(range(1, 200))})
        (disk / "ballast").unlink()
        shutil.rmtree(disk / "study", ignore_errors=True)
        assert set(compare(tiny, "linear", **request).frame.status) == {"ok"}
    finally:
        subprocess.run(["umount", disk], check=True)
