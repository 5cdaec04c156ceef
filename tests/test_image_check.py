"""datasets/image_check.py: which files are images, which of them are bad, and what is remembered of that."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from image_files import JPEG, PNG, image_bytes, make, names
from PIL import Image

from framework_compare.datasets import image_check
from framework_compare.datasets.folder import read_folder
from framework_compare.errors import DataError


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch) -> Path:
    made = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FRAMEWORK_COMPARE_CACHE", str(made))
    return made


def test_hidden_files_and_other_files_are_ignored(tmp_path: Path) -> None:
    noise = {"a/.DS_Store": b"x", "a/Thumbs.db": b"x", "a/._1.jpg": b"x", "b/notes.txt": b"BMP", ".git/1.jpg": b"x"}
    index = read_folder(make(tmp_path, {"a/1.jpg": JPEG, "b/1.jpg": JPEG, "manifest.csv": b"a,b", **noise}))
    assert names(index) == ["1.jpg", "1.jpg"]


def test_format_comes_from_the_bytes(tmp_path: Path) -> None:
    root = make(tmp_path, {"a/really.png": JPEG, "a/really2.jpg": PNG, "b/no_extension": JPEG, "b/x.txt": PNG})
    assert read_folder(root).files.formats == ("JPEG", "PNG", "JPEG", "PNG")


KINDS = {
    "cmyk": image_bytes(mode="CMYK"),
    "grey": image_bytes(mode="L"),
    "progressive": image_bytes(progressive=True),
    "palette": image_bytes("PNG", "P"),
    "alpha": image_bytes("PNG", "RGBA"),
    "one_bit": image_bytes("PNG", "1"),
    "sixteen_bit": image_bytes("PNG", "I;16"),
    "gif": image_bytes("GIF"),
    "bmp": image_bytes("BMP"),
    "webp": image_bytes("WEBP"),
    "tiff": image_bytes("TIFF"),
    "ppm": image_bytes("PPM"),
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
def test_a_bad_image_fails_with_its_name_and_reason(tmp_path: Path, kind: str) -> None:
    data, reason = BAD[kind]
    root = make(tmp_path, {"a/1.jpg": JPEG, "a/odd.jpg": data, "b/1.jpg": JPEG})
    with pytest.raises(DataError, match=rf"odd\.jpg.*{reason}.*on_bad_image='skip'"):
        read_folder(root)


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_image_is_skipped_and_listed(tmp_path: Path, kind: str) -> None:
    data, reason = BAD[kind]
    root = make(tmp_path, {"a/1.jpg": JPEG, "a/odd.jpg": data, "b/1.jpg": JPEG})
    index = read_folder(root, on_bad_image="skip")
    assert names(index) == ["1.jpg", "1.jpg"]
    ((path, why),) = index.skipped
    assert path == str(root / "a/odd.jpg")
    assert reason.strip(".") in why
    assert "0x" not in why and "\n" not in why


def test_a_decompression_bomb_is_a_bad_image(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(image_check, "MAX_IMAGE_PIXELS", 5000)
    root = make(
        tmp_path,
        {"a/1.jpg": JPEG, "a/2.png": image_bytes("PNG", size=(100, 51)), "b/1.jpg": image_bytes(size=(51, 100))},
    )
    with pytest.raises(DataError, match="100 x 51 pixels, more than the 5000 allowed.*and 1 more"):
        read_folder(root)


def test_a_class_of_bad_images_only_is_refused(tmp_path: Path) -> None:
    root = make(tmp_path, {"a/1.jpg": JPEG, "b/1.jpg": b"x"})
    with pytest.raises(DataError, match="class 'b' .* has no image that decodes"):
        read_folder(root, on_bad_image="skip")


def test_a_named_pipe_does_not_block(tmp_path: Path) -> None:
    root = make(tmp_path, {"a/1.jpg": JPEG, "b/1.jpg": JPEG})
    os.mkfifo(root / "a" / "pipe.jpg")
    os.mkfifo(root / "a" / "pipe")
    index = read_folder(root, on_bad_image="skip")
    assert [reason for _, reason in index.skipped] == ["it is not a regular file"]


@pytest.mark.parametrize(
    "name", ["new\nline.jpg", "quote'\".jpg", "\udcff\udcfe.jpg", "ü € 火.jpg", "-rf.jpg"], ids=ascii
)
def test_odd_names(tmp_path: Path, name: str) -> None:
    root = make(tmp_path, {f"a/{name}": JPEG, "b/1.jpg": JPEG})
    for _ in range(2):  # the second time from the cache
        assert names(read_folder(root))[0] == name


def test_a_bad_image_with_a_newline_in_its_name_gives_one_line(tmp_path: Path) -> None:
    root = make(tmp_path, {"a/new\nline.jpg": b"", "b/1.jpg": JPEG})
    with pytest.raises(DataError) as caught:
        read_folder(root)
    assert "\n" not in str(caught.value)


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


def test_a_cache_folder_that_cannot_be_written_is_no_obstacle(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FRAMEWORK_COMPARE_CACHE", str(tmp_path / "file"))
    assert len(read_folder(make(tmp_path / "set", {"a/1.jpg": JPEG, "b/1.jpg": JPEG})).files) == 2
