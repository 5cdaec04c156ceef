"""datasets/folder.py and resolve.py: what a folder of images is taken for, and what is refused."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from image_files import JPEG, PNG, make, names

from framework_compare.datasets import folder
from framework_compare.datasets.folder import limit, read_folder
from framework_compare.datasets.resolve import resolve
from framework_compare.errors import DataError

REAL = Path(__file__).parents[2] / "shared" / "data" / "fire_smoke_791"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch) -> Path:
    made = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FRAMEWORK_COMPARE_CACHE", str(made))
    return made


def test_classes_are_sorted_folder_names_and_images_sorted_within(tmp_path: Path) -> None:
    root = make(tmp_path / "pets", {"dog/2.jpg": JPEG, "cat/b.jpg": JPEG, "dog/1.jpg": JPEG, "cat/deep/a.png": PNG})
    index = read_folder(root)
    assert index.files.classes == ("cat", "dog")
    assert names(index) == ["b.jpg", "a.png", "1.jpg", "2.jpg"]
    assert index.files.labels == (0, 0, 1, 1)
    assert index.files.formats == ("JPEG", "PNG", "JPEG", "JPEG")
    assert all(os.path.isabs(path) for path in index.files.paths)
    assert (index.name, index.skipped, index.ignored_folders) == ("pets", (), ())


def test_fire_and_smoke_come_in_the_order_of_the_study(tmp_path: Path) -> None:
    root = make(tmp_path, {"no_fire/a.jpg": JPEG, "smoke/a.jpg": JPEG, "fire/a.jpg": JPEG})
    assert read_folder(root).files.classes == ("fire", "smoke", "no_fire")


def test_given_classes_fix_the_order_and_name_what_is_ignored(tmp_path: Path) -> None:
    root = make(tmp_path, {"a/1.jpg": JPEG, "b/1.jpg": JPEG, "c/1.jpg": b"bad, but not asked for"})
    index = read_folder(root, classes=["b", "a"])
    assert index.files.classes == ("b", "a")
    assert [Path(path).parent.name for path in index.files.paths] == ["b", "a"]
    assert index.ignored_folders == ("c",)


def test_a_missing_class_is_named_with_what_was_found(tmp_path: Path) -> None:
    root = make(tmp_path, {"a/1.jpg": JPEG, "b/1.jpg": JPEG})
    with pytest.raises(DataError, match=r"no folder of class 'z'; found: a, b"):
        read_folder(root, classes=["a", "z"])


@pytest.mark.parametrize("classes", ["fire", [], ["a", "a"]], ids=repr)
def test_classes_must_be_a_list_of_different_names(tmp_path: Path, classes: object) -> None:
    root = make(tmp_path, {"a/1.jpg": JPEG, "b/1.jpg": JPEG})
    with pytest.raises(DataError, match="allowed: (a list of class names, or None for all|each once)"):
        read_folder(root, classes=classes)


def test_splits_are_merged(tmp_path: Path) -> None:
    root = make(tmp_path, {f"{split}/{name}/1.jpg": JPEG for split in ("Train", "val", "test") for name in ("a", "b")})
    index = read_folder(root)
    assert index.files.classes == ("a", "b")
    assert index.files.labels == (0, 0, 0, 1, 1, 1)


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    assert read_folder(make(tmp_path / "1", {"train/1.jpg": JPEG, "bus/1.jpg": JPEG})).files.classes == (
        "bus",
        "train",
    )
    assert read_folder(make(tmp_path / "2", {"train/1.jpg": JPEG, "test/1.jpg": JPEG})).files.classes == (
        "test",
        "train",
    )


def test_links_that_loop_and_links_that_lead_nowhere(tmp_path: Path) -> None:
    root = make(tmp_path / "set", {"a/1.jpg": JPEG, "b/1.jpg": JPEG})
    (root / "a" / "up").symlink_to(root)
    (root / "a" / "here").symlink_to(root / "a")
    (root / "b" / "top").symlink_to("/")
    (root / "b" / "itself").symlink_to(root / "b" / "itself")
    (root / "b" / "gone.jpg").symlink_to(root / "nothing.jpg")
    index = read_folder(root, on_bad_image="skip")
    assert names(index) == ["1.jpg", "1.jpg"]
    assert [os.path.basename(path) for path, _ in index.skipped] == ["gone.jpg"]


def test_a_linked_class_folder_is_followed(tmp_path: Path) -> None:
    make(tmp_path / "elsewhere", {"1.jpg": JPEG})
    root = make(tmp_path / "set", {"a/1.jpg": JPEG})
    (root / "b").symlink_to(tmp_path / "elsewhere")
    assert read_folder(root).files.paths[1] == str(root / "b" / "1.jpg")


@pytest.mark.parametrize(
    "files, message",
    [
        ({}, "has no class folders"),
        ({"1.jpg": JPEG}, "has no class folders"),
        ({"a/1.jpg": JPEG}, "has only one class folder, 'a'"),
        ({"a/1.jpg": JPEG, "b/notes.txt": b"x"}, "class 'b' .* has no image that decodes"),
        ({"a/1.jpg": JPEG, "b/.hidden": b"x"}, "/b' has no files in it"),
    ],
    ids=["empty", "flat", "one-class", "no-images", "empty-class"],
)
def test_folders_that_are_no_data_set(tmp_path: Path, files: dict, message: str) -> None:
    (tmp_path / "set").mkdir()
    with pytest.raises(DataError, match=message):
        read_folder(make(tmp_path / "set", files))


def test_a_missing_folder_and_a_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_folder(tmp_path / "nothing")
    (tmp_path / "file").write_bytes(JPEG)
    with pytest.raises(DataError, match="is a file"):
        read_folder(tmp_path / "file")


def test_on_bad_image_allows_two_words(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="on_bad_image is 'ignore'; allowed: 'fail', 'skip'"):
        read_folder(tmp_path, on_bad_image="ignore")


def test_progress_counts_to_the_total(tmp_path: Path) -> None:
    root = make(tmp_path, {f"{name}/{i}.jpg": JPEG for name in "ab" for i in range(70)})
    seen: list[tuple[int, int]] = []
    read_folder(root, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (140, 140)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


@pytest.fixture
def uneven(tmp_path: Path) -> folder.ImageFolder:
    counts = {"a": 60, "b": 30, "c": 3}
    return read_folder(make(tmp_path, {f"{c}/{i:02}.jpg": JPEG for c, n in counts.items() for i in range(n)}))


@pytest.mark.parametrize("n, counts", [(31, (19, 10, 2)), (3, (1, 1, 1)), (92, (59, 30, 3)), (10, (6, 3, 1))], ids=str)
def test_limit_keeps_shares_and_order(uneven: folder.ImageFolder, n: int, counts: tuple[int, ...]) -> None:
    kept = limit(uneven, n, seed=1).files
    assert len(kept) == n
    assert tuple(np.bincount(kept.labels)) == counts
    position = {path: i for i, path in enumerate(uneven.files.paths)}
    assert [position[path] for path in kept.paths] == sorted(position[path] for path in kept.paths)


def test_limit_is_seeded(uneven: folder.ImageFolder) -> None:
    assert limit(uneven, 30, seed=1) == limit(uneven, 30, seed=1)
    assert limit(uneven, 30, seed=1) != limit(uneven, 30, seed=2)
    assert limit(uneven, 1000) == uneven


@pytest.mark.parametrize("n", [2, 0, -1, True, 2.5, "3"], ids=repr)
def test_limit_needs_one_image_a_class(uneven: folder.ImageFolder, n: object) -> None:
    with pytest.raises(DataError, match="at least one image per class, 3, not"):
        limit(uneven, n)


def test_resolve_takes_a_folder(tmp_path: Path, monkeypatch) -> None:
    root = make(tmp_path / "pets", {"a/1.jpg": JPEG, "a/2.jpg": JPEG, "b/1.jpg": JPEG})
    monkeypatch.chdir(tmp_path)
    assert resolve("pets").name == resolve(root).name == resolve("./pets/").name == "pets"
    assert resolve(str(root), classes=["b", "a"], limit=2).files.labels == (0, 1)


def test_resolve_names_what_is_allowed() -> None:
    with pytest.raises(DataError, match=r"'imagenet'; allowed: fire-smoke-small.*path of a folder"):
        resolve("imagenet")
    with pytest.raises(DataError, match="does not exist"):
        resolve(Path("imagenet"))


@pytest.mark.skipif(
    not REAL.exists(), reason=f"the 791 real images are not at {REAL}; CONTRIBUTING.md says where they are published"
)
def test_the_real_images() -> None:
    index = read_folder(REAL)
    assert index.files.classes == ("fire", "smoke", "no_fire")
    assert Counter(index.files.labels) == {0: 264, 1: 264, 2: 263}
    assert index.skipped == ()
