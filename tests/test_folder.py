"""datasets/folder.py, resolve.py, image_check.py: what a folder of images is taken for, and what is refused, or bad."""

import io
import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from image_files import JPEG, PNG, image_bytes, make, names
from PIL import Image

from framework_compare.datasets import folder, image_check
from framework_compare.datasets.folder import limit, read_folder
from framework_compare.datasets.resolve import resolve
from framework_compare.errors import DataError

REAL = Path(__file__).parents[2] / "shared" / "data" / "fire_smoke_791"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch) -> Path:
    made = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FRAMEWORK_COMPARE_CACHE", str(made))
    return made


def test_classes_and_images_have_an_order(tmp_path: Path) -> None:
    root = make(tmp_path / "pets", {"dog/2.jpg": JPEG, "cat/b.jpg": JPEG, "dog/1.jpg": JPEG, "cat/deep/a.png": PNG})
    index = read_folder(root)
    assert index.files.classes == ("cat", "dog")
    assert names(index) == ["b.jpg", "a.png", "1.jpg", "2.jpg"]
    assert index.files.labels == (0, 0, 1, 1)
    assert index.files.formats == ("JPEG", "PNG", "JPEG", "JPEG")
    assert all(os.path.isabs(path) for path in index.files.paths)
    assert (index.name, index.skipped, index.ignored_folders) == ("pets", (), ())
    root = make(tmp_path / "fire", {"no_fire/a.jpg": JPEG, "smoke/a.jpg": JPEG, "fire/a.jpg": JPEG})
    assert read_folder(root).files.classes == ("fire", "smoke", "no_fire")
    root = make(tmp_path / "given", {"a/1.jpg": JPEG, "b/1.jpg": JPEG, "c/1.jpg": b"bad, but not asked for"})
    index = read_folder(root, classes=["b", "a"])
    assert index.files.classes == ("b", "a")
    assert [Path(path).parent.name for path in index.files.paths] == ["b", "a"]
    assert index.ignored_folders == ("c",)


def test_given_classes_are_two_of_those_there(tmp_path: Path) -> None:
    root = make(tmp_path, {"a/1.jpg": JPEG, "b/1.jpg": JPEG})
    with pytest.raises(DataError, match=r"no folder of class 'z'; found: a, b"):
        read_folder(root, classes=["a", "z"])
    with pytest.raises(DataError, match=r"classes are \['a'\]; at least two are needed"):
        read_folder(root, classes=["a"])


@pytest.mark.parametrize("classes", ["fire", [], ["a", "a"]], ids=repr)
def test_classes_must_be_a_list_of_different_names(tmp_path: Path, classes: object) -> None:
    root = make(tmp_path, {"a/1.jpg": JPEG, "b/1.jpg": JPEG})
    with pytest.raises(DataError, match="allowed: (a list of class names, or None for all|each once)"):
        read_folder(root, classes=classes)


def test_splits_are_merged_and_a_class_may_be_called_train(tmp_path: Path) -> None:
    root = make(tmp_path, {f"{split}/{name}/1.jpg": JPEG for split in ("Train", "val", "test") for name in ("a", "b")})
    index = read_folder(root)
    assert index.files.classes == ("a", "b")
    assert index.files.labels == (0, 0, 0, 1, 1, 1)
    assert read_folder(make(tmp_path / "1", {"train/1.jpg": JPEG, "bus/1.jpg": JPEG})).files.classes == ("bus", "train")
    assert read_folder(make(tmp_path / "2", {"train/1.jpg": JPEG, "test/1": JPEG})).files.classes == ("test", "train")


def test_links_are_followed_and_no_loops(tmp_path: Path) -> None:
    root = make(tmp_path / "set", {"a/1.jpg": JPEG, "b/1.jpg": JPEG})
    (root / "a" / "up").symlink_to(root)
    (root / "a" / "here").symlink_to(root / "a")
    (root / "b" / "top").symlink_to("/")
    (root / "b" / "itself").symlink_to(root / "b" / "itself")
    (root / "b" / "gone.jpg").symlink_to(root / "nothing.jpg")
    index = read_folder(root, on_bad_image="skip")
    assert names(index) == ["1.jpg", "1.jpg"]
    assert [os.path.basename(path) for path, _ in index.skipped] == ["gone.jpg"]
    make(tmp_path / "linked-elsewhere", {"1.jpg": JPEG})
    root = make(tmp_path / "linked-set", {"a/1.jpg": JPEG})
    (root / "b").symlink_to(tmp_path / "linked-elsewhere")
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


def test_a_missing_folder_a_file_and_a_wrong_word(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_folder(tmp_path / "nothing")
    (tmp_path / "file").write_bytes(JPEG)
    with pytest.raises(DataError, match="is a file"):
        read_folder(tmp_path / "file")
    with pytest.raises(DataError, match="on_bad_image is 'ignore'; allowed: 'fail', 'skip'"):
        read_folder(tmp_path, on_bad_image="ignore")


def test_progress_counts_and_names_with_newlines_give_one_line(tmp_path: Path, monkeypatch) -> None:
    root = make(tmp_path, {f"{name}/{i}.jpg": JPEG for name in "ab" for i in range(70)})
    seen: list[tuple[int, int]] = []
    read_folder(root, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (140, 140)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    root = make(tmp_path / "newline", {"a/new\nline.jpg": b"", "b/1.jpg": JPEG})
    with pytest.raises(DataError) as caught:
        read_folder(root)
    assert "\n" not in str(caught.value)
    (tmp_path / "blocked-file").write_text("")
    monkeypatch.setenv("FRAMEWORK_COMPARE_CACHE", str(tmp_path / "blocked-file"))
    assert len(read_folder(make(tmp_path / "blocked-set", {"a/1.jpg": JPEG, "b/1.jpg": JPEG})).files) == 2


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


def test_resolve_takes_a_folder_and_names_what_is_allowed(tmp_path: Path, monkeypatch) -> None:
    root = make(tmp_path / "pets", {"a/1.jpg": JPEG, "a/2.jpg": JPEG, "b/1.jpg": JPEG})
    monkeypatch.chdir(tmp_path)
    assert resolve("pets").name == resolve(root).name == resolve("./pets/").name == "pets"
    assert resolve(str(root), classes=["b", "a"], limit=2).files.labels == (0, 1)
    with pytest.raises(DataError, match=r"'imagenet'; allowed: fire-smoke-small.*path of a folder"):
        resolve("imagenet")
    with pytest.raises(DataError, match="does not exist"):
        resolve(Path("imagenet"))


@pytest.mark.skipif(not REAL.exists(), reason=f"the 791 real images are not at {REAL}; see CONTRIBUTING.md")
def test_the_real_images() -> None:
    index = read_folder(REAL)
    assert index.files.classes == ("fire", "smoke", "no_fire")
    assert Counter(index.files.labels) == {0: 264, 1: 264, 2: 263}
    assert index.skipped == ()


def test_hidden_files_are_ignored_and_formats_come_from_the_bytes(tmp_path: Path) -> None:
    noise = {"a/.DS_Store": b"x", "a/Thumbs.db": b"x", "a/._1.jpg": b"x", "b/notes.txt": b"BMP", ".git/1.jpg": b"x"}
    index = read_folder(make(tmp_path, {"a/1.jpg": JPEG, "b/1.jpg": JPEG, "manifest.csv": b"a,b", **noise}))
    assert names(index) == ["1.jpg", "1.jpg"]
    root = make(tmp_path / "format", {"a/really.png": JPEG, "a/really2.jpg": PNG, "b/bare": JPEG, "b/x.txt": PNG})
    assert read_folder(root).files.formats == ("JPEG", "PNG", "JPEG", "PNG")


KINDS = {
    **{"cmyk": image_bytes(mode="CMYK"), "grey": image_bytes(mode="L"), "progressive": image_bytes(progressive=True)},
    **{"palette": image_bytes("PNG", "P"), "alpha": image_bytes("PNG", "RGBA"), "one_bit": image_bytes("PNG", "1")},
    **{"sixteen_bit": image_bytes("PNG", "I;16"), "gif": image_bytes("GIF"), "bmp": image_bytes("BMP")},
    **{"webp": image_bytes("WEBP"), "tiff": image_bytes("TIFF"), "ppm": image_bytes("PPM")},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_image_is_accepted(tmp_path: Path, kind: str) -> None:
    root = make(tmp_path, {"a/1": KINDS[kind], "b/1.jpg": JPEG})
    with Image.open(io.BytesIO(KINDS[kind])) as image:
        assert read_folder(root).files.formats[0] == image.format


BAD = {
    "empty": (b"", "it is empty"),
    "text": (b"<html>404</html>", "its bytes have no known image format"),
    "truncated": (image_bytes(size=(200, 200))[:-3000], "it does not decode"),
    "header_only": (JPEG[:12], "."),
    "cut_png": (image_bytes("PNG", size=(100, 100))[:5000], "it does not decode"),
    "png_header": (PNG[:20], "."),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_image_fails_with_its_name_and_reason_or_is_skipped_and_listed(tmp_path: Path, kind: str) -> None:
    data, reason = BAD[kind]
    root = make(tmp_path, {"a/1.jpg": JPEG, "a/odd.jpg": data, "b/1.jpg": JPEG})
    with pytest.raises(DataError, match=rf"odd\.jpg.*{reason}.*on_bad_image='skip'"):
        read_folder(root)
    index = read_folder(root, on_bad_image="skip")
    assert names(index) == ["1.jpg", "1.jpg"]
    ((path, why),) = index.skipped
    assert path == str(root / "a/odd.jpg")
    assert reason.strip(".") in why
    assert "0x" not in why and "\n" not in why


def test_only_bad_images_bombs_and_pipes_are_bad(tmp_path: Path, monkeypatch) -> None:
    root = make(tmp_path, {"a/1.jpg": JPEG, "b/1.jpg": b"x"})
    with pytest.raises(DataError, match="class 'b' .* has no image that decodes"):
        read_folder(root, on_bad_image="skip")
    root = make(tmp_path / "pipe", {"a/1.jpg": JPEG, "b/1.jpg": JPEG})
    os.mkfifo(root / "a" / "pipe.jpg")
    os.mkfifo(root / "a" / "pipe")
    index = read_folder(root, on_bad_image="skip")
    assert [reason for _, reason in index.skipped] == ["it is not a regular file"]
    monkeypatch.setattr(image_check, "MAX_IMAGE_PIXELS", 5000)
    root = make(
        tmp_path / "bomb",
        {"a/1.jpg": JPEG, "a/2.png": image_bytes("PNG", size=(100, 51)), "b/1.jpg": image_bytes(size=(51, 100))},
    )
    with pytest.raises(DataError, match="100 x 51 pixels, more than the 5000 allowed.*and 1 more"):
        read_folder(root)


@pytest.mark.parametrize("name", ["new\nline.jpg", "quote'\"", "\udcff\udcfe.jpg", "ü € 火.jpg", "-rf.jpg"], ids=ascii)
def test_odd_names(tmp_path: Path, name: str) -> None:
    root = make(tmp_path, {f"a/{name}": JPEG, "b/1.jpg": JPEG})
    for _ in range(2):  # the second time from the cache
        assert names(read_folder(root))[0] == name


def test_images_are_decoded_once_and_again_when_they_change(tmp_path: Path, monkeypatch) -> None:
    root = make(tmp_path, {"a/1.jpg": JPEG, "b/1.jpg": JPEG, "b/2.jpg": b""})
    judged: list[str] = []
    judge = image_check.judge
    monkeypatch.setattr(image_check, "judge", lambda path: judged.append(path) or judge(path))
    first = read_folder(root, on_bad_image="skip")
    assert len(judged) == 3
    assert read_folder(root, on_bad_image="skip") == first
    assert len(judged) == 3
    (root / "b/2.jpg").write_bytes(PNG)
    assert names(read_folder(root)) == ["1.jpg", "1.jpg", "2.jpg"]
    assert judged[3:] == [str(root / "b/2.jpg")]


@pytest.mark.parametrize("content", ["", "{", "[]", json.dumps({"made_by": "else", "files": []})], ids=repr)
def test_a_damaged_cache_is_made_anew(tmp_path: Path, cache: Path, content: str) -> None:
    root = make(tmp_path, {"a/1.jpg": JPEG, "b/1.jpg": JPEG})
    expected = read_folder(root)
    (store,) = (cache / "index").iterdir()
    store.write_text(content)
    assert read_folder(root) == expected
    assert json.loads(store.read_text())["files"]
