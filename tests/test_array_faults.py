"""Bad files: each is one sentence with the file, the line and what to do; no file is left half-written."""

import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest
from command_line import run
from image_files import Runs, write_idx
from PIL import Image

from framework_compare.datasets.arrays import load
from framework_compare.errors import DataError, UsageError

PRICES = "Date,Open,High,Low,Close,Volume,Name\n" + "".join(f"2016-12-{d:02},1,2,1,{d},9,IBM\n" for d in range(1, 13))
PIMA = "Pregnancies,Glucose,BloodPressure,SkinThickness,Insulin,BMI,DiabetesPedigreeFunction,Age,Outcome\n" + "".join(
    f"{i},{90 + i},{60 + i},{20 + i},{80 + i},{25 + i},0.{i + 1},{30 + i},{i % 2}\n" for i in range(9)
)
TWEETS = "textID,text,selected_text,sentiment\n" + "".join(f"{i},aa bb cc{i},bb,positive\n" for i in range(12))
TRAIN = "ann\tB-PER\nsmiles\tO\n\nin\tO\nrome\tB-LOC\n"
JPEG = b"\xff\xd8\xff\xe0" + bytes(60)


def fails(folder: Path, name: str, text: "str | bytes", file: str, message: str, **options) -> None:
    """Loading raises one DataError of one line that names the file; the folder holds what it held."""
    path = folder / file
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = sorted(folder.rglob("*"))
    with pytest.raises(DataError, match=message) as raised:
        load(name, path if file.endswith(".csv") else folder, **options)
    assert "\n" not in str(raised.value) and str(path) in str(raised.value)
    assert sorted(folder.rglob("*")) == before


def test_bad_prices_and_options(tmp_path):
    for text, message in (
        (PRICES.replace("Close", "Last"), "has no column 'Close'; its columns are: Date, Open, High, Low, Last"),
        (PRICES.replace(",3,9", ",n/a,9"), "line 4: Close is 'n/a', not a number; fix or remove the row"),
        (PRICES.replace(",3,9", ",1_000,9"), "line 4: Close is '1_000', not a number"),
        (PRICES.replace(",3,9", ",,9"), "line 4: Close is empty, not a number"),
        (PRICES.replace(",3,9", ",nan,9"), "line 4: Close is 'nan'; a finite number is needed"),
        (PRICES.replace(",3,9", ",inf,9"), "line 4: Close is 'inf'; a finite number is needed"),
        (PRICES.replace("2016-12-03", "03.12.2016"), "line 4: Date is '03.12.2016'; it must be YYYY-MM-DD"),
        (PRICES.replace("2016-12-03", "2016-12-02"), "line 4: Date 2016-12-02 follows 2016-12-02; dates must rise"),
        (PRICES.replace(",3,9", ",3"), "line 4: 6 columns where the header has 7; fix the row"),
        (PRICES.replace("IBM\n", "AAPL\n", 1), "has prices of 2 tickers; keep the rows of one, such as 'AAPL'"),
        (PRICES.replace("Volume", "Close"), "has column 'Close' twice; keep one"),
        (PRICES.partition("\n")[0], "has a header and no rows; give one with data"),
        ("", "is empty; give one with data"),
        ("\n \n", "holds no text; give one with data"),
        (JPEG, "is a JPEG image where text is needed; give the text file"),
        (PRICES.encode() + b"\xe9\xe8", "line 14: not UTF-8 text; convert the file to UTF-8"),
        (PRICES.replace("IBM", "I\0M", 1), "line 2: it has a zero byte"),
        (PRICES.replace(",3,9", ',"3,9'), "not CSV: unexpected end of data; fix the row"),
        (PRICES.replace("2016-12-1", "2016-11-1"), "line 11: Date 2016-11-10 follows 2016-12-09"),
    ):
        fails(tmp_path, "prices", text, "prices.csv", message, window=3)
    message = "12 days, of which 9 train; the training part needs more than the window of 60"
    fails(tmp_path, "prices", PRICES, "prices.csv", message)
    fails(tmp_path, "prices", PRICES, "prices.csv", "12 days, of which 0 train", validation=251)
    flat = PRICES.replace(",2,1,", ",5,1,")
    fails(tmp_path, "prices", flat, "prices.csv", "High is the same on all 9 training days", window=3, column="High")
    (tmp_path / "a.csv").write_text(PRICES)
    for options, message in (
        ({"window": 0}, "window is 0; allowed: a whole number of at least 1"),
        ({"validation": 1.5}, "validation is 1.5; allowed: a share between 0 and 1"),
        ({"validation": True}, "validation is True"),
    ):
        with pytest.raises(UsageError, match=message):
            load("prices", tmp_path / "a.csv", **options)


def test_bad_rows_and_tweets(tmp_path):
    for text, message in (
        (PIMA.replace("Glucose", "Sugar"), "has no column 'Glucose'"),
        (PIMA.replace(",91,", ",high,"), "line 3: Glucose is 'high', not a number"),
        (PIMA.replace(",38,0\n", ",38,2\n"), "line 10: Outcome is 2; allowed: 0 and 1"),
        (PIMA.replace(",91,", ",NaN,"), "line 3: Glucose is 'NaN'; a finite number is needed"),
        ("", "is empty"),
    ):
        fails(tmp_path, "diabetes", text, "diabetes.csv", message)
    for text, message in (
        (TWEETS.replace("selected_text", "selected"), "has no column 'selected_text'"),
        (TWEETS.replace("bb,positive", "bb,glad", 1), "line 2: sentiment is none of positive, negative, neutral; fix"),
        (TWEETS.replace(",bb,", ",zz,", 1), "line 2: selected_text is not part of text; fix or remove the row"),
        (TWEETS.replace(",bb,", ",,", 1), "line 2: selected_text is not part of text"),
        (TWEETS.replace("aa bb cc", "bb"), "has no positive tweet of 3 words or more"),
        (JPEG, "is a JPEG image where text is needed"),
    ):
        fails(tmp_path, "tweet-span", text, "train.csv", message)


def test_bad_conll(tmp_path):
    for train, message in (
        (TRAIN.replace("smiles\tO", "smiles"), "line 2: 1 column where a word and its tag are needed; fix or remove"),
        (TRAIN.replace("smiles\tO", "O\tsmiles"), "line 2: its last column is not a BIO tag; allowed: O, and B- or I-"),
        (TRAIN.replace("smiles\tO", "smiles\t"), "line 2: its last column is not a BIO tag"),
        ("", "is empty"),
        (JPEG, "is a JPEG image where text is needed"),
        ("-DOCSTART- O\n", "has no sentences"),
    ):
        (tmp_path / "my.dev").write_text(TRAIN)
        fails(tmp_path, "tweet-ner", train, "my.train", message)


def test_parts_of_a_corpus_that_do_not_fit(tmp_path):
    (tmp_path / "my.train").write_text(TRAIN)
    message = r"folder .* the validation part must be one file like \*dev\* or .*; it has none"
    with pytest.raises(DataError, match=message):
        load("tweet-ner", tmp_path)
    with pytest.raises(DataError, match="is a file; a folder with a train and a dev file in CoNLL form is needed"):
        load("tweet-ner", tmp_path / "my.train")
    (tmp_path / "my.train").write_text("a\tO\n")
    (tmp_path / "my.dev").write_text("a\tO\n")
    with pytest.raises(DataError, match="the training part has no entity, every tag is O"):
        load("tweet-ner", tmp_path)
    (tmp_path / "my.train").write_text(TRAIN)
    message = "line 5: tag B-ORG is not in the tag set; allowed: O, B-LOC, I-LOC, B-PER, I-PER"
    fails(tmp_path, "tweet-ner", TRAIN.replace("B-LOC", "B-ORG"), "my.dev", message)
    (tmp_path / "my.dev").write_text(TRAIN)
    (tmp_path / "my.train").write_text("secret\n")
    with pytest.raises(DataError) as raised:
        load("tweet-ner", tmp_path)
    assert "secret" not in str(raised.value)


def test_texts_and_columns_that_cannot_be_prepared(tmp_path):
    (tmp_path / "a.txt").write_text("one two\nthree four\n")
    with pytest.raises(DataError, match="the text is too short for windows of 20 words in both splits; take more text"):
        load("tweet-words", tmp_path / "a.txt")
    with pytest.raises(UsageError, match="vocabulary is 2; allowed: a whole number of at least 3"):
        load("tweet-words", tmp_path / "a.txt", vocabulary=2)
    rows = PIMA.split("\n")
    no_glucose = "\n".join([rows[0], *(",".join([r.split(",")[0], "0", *r.split(",")[2:]]) for r in rows[1:] if r)])
    (tmp_path / "d.csv").write_text(no_glucose)
    with pytest.raises(DataError, match="Glucose is 0, which means missing, in all training rows"):
        load("diabetes", tmp_path / "d.csv")
    (tmp_path / "d.csv").write_text(no_glucose.replace(",0,", ",90,"))
    with pytest.raises(DataError, match="Glucose is the same in all 7 training rows; it cannot be standardised"):
        load("diabetes", tmp_path / "d.csv")


def test_bad_idx_files(tmp_path):
    write_idx(tmp_path, "t10k", np.zeros((20, 28, 28)), np.arange(19) % 10)
    with pytest.raises(DataError, match="has 20 images and .* 19 labels; they differ"):
        load("mnist", tmp_path)
    write_idx(tmp_path, "t10k", np.zeros((20, 28, 28)), np.full(20, 12))
    with pytest.raises(DataError, match="item 0: label 12; allowed: 0 to 9"):
        load("mnist", tmp_path)
    images, labels = np.zeros((20, 28, 28)), np.arange(20) % 10
    path = write_idx(tmp_path, "t10k", images, labels) / "t10k-images-idx3-ubyte"
    with pytest.raises(DataError, match="train 15 and validation 6 ask for more than the 20 images there are"):
        load("mnist", tmp_path, train=15, validation=6)
    with pytest.raises(UsageError, match="train is 0; allowed: a whole number of at least 1"):
        load("mnist", train=0)
    whole = path.read_bytes()
    fails(tmp_path, "mnist", whole[:-1], path.name, "has 15695 bytes, its header asks for 15696; get it again")
    no_bytes = "is not an IDX file of uint8 with 3 axes; its first bytes are "
    fails(tmp_path, "mnist", b"\0\0\x0d\x03" + whole[4:], path.name, no_bytes + "00000d03")
    fails(tmp_path, "mnist", JPEG, path.name, no_bytes + "ffd8ffe0")
    fails(tmp_path, "mnist", b"", path.name, "is empty")
    path.unlink()
    fails(tmp_path, "mnist", gzip.compress(whole)[:-9], path.name + ".gz", "cannot be read: Compressed file ended")


def batch_of_cifar10(labels: "list[int]", width: int = 3072) -> bytes:
    return pickle.dumps({b"data": np.zeros((2, width), np.uint8), b"labels": labels})


TWO_OF_CIFAR10 = batch_of_cifar10([0, 1])


def test_bad_batches_of_cifar10_are_refused_and_run_nothing(tmp_path):
    for content, message in (
        (JPEG, "is not a batch of CIFAR-10"),
        (pickle.dumps([1]), "it holds a list; get it again"),
        (batch_of_cifar10([0, 1], width=10), r"has no uint8 data of \(N, 3072\)"),
        (batch_of_cifar10([0, 10]), "a label of 0 to 9 for each of its 2"),
        (batch_of_cifar10([0]), "a label of 0 to 9 for each of its 2"),
        (b"", "is empty"),
    ):
        (tmp_path / "test_batch").write_bytes(TWO_OF_CIFAR10)
        fails(tmp_path, "cifar10", content, "data_batch_1", message)
    (tmp_path / "test_batch").write_bytes(TWO_OF_CIFAR10)
    bad = pickle.dumps({b"data": Runs(tmp_path / "ran")})
    message = "is not a batch of CIFAR-10: it names pathlib.*which a batch does not need"
    fails(tmp_path, "cifar10", bad, "data_batch_1", message)
    assert not (tmp_path / "ran").exists()


def class_folders(folder: Path, splits: "tuple[str, ...]" = ("train", "val")) -> Path:
    for split in splits:
        for name in ("a", "b"):
            (folder / split / name).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(folder / split / name / "0.png")
    return folder


def test_bad_folders_of_images(tmp_path):
    root = class_folders(tmp_path)
    bad = "train/a/1.jpg"
    fails(root, "guava", b"hello", bad, "cannot be read: it is not an image; fix or remove it")
    fails(root, "guava", b"", bad, "cannot be read: it is empty")
    fails(root, "guava", JPEG, bad, "cannot be read: ")
    (root / bad).unlink()
    (root / "val" / "b" / "0.png").unlink()
    with pytest.raises(DataError, match="class folder .*val/b' has no images; each class needs some in both splits"):
        load("guava", root)
    (root / "val" / "c").mkdir()
    with pytest.raises(DataError, match="val' has class 'c', which the train split lacks; remove or add it"):
        load("guava", root)
    root = class_folders(tmp_path / "one", ("train",))
    with pytest.raises(DataError, match="has no folder of the validation split; it must be called val or valid"):
        load("tiny-imagenet", root)
    (tmp_path / "two" / "train" / "a").mkdir(parents=True)
    (tmp_path / "two" / "val").mkdir()
    with pytest.raises(DataError, match="has 1 class folders; at least two are needed"):
        load("cifar10", tmp_path / "two")
    with pytest.raises(UsageError, match="image_size is 0; allowed: a whole number of at least 1"):
        load("guava", image_size=0)


def test_annotations_of_another_set(tmp_path):
    root = class_folders(tmp_path)
    for text, message in (
        ("x.png\tz\t0\n", "line 1: no file name and class of the train split"),
        ("", "is empty; give one with data"),
        (b"\xff\xfe", "line 1: not UTF-8 text"),
    ):
        fails(root, "tiny-imagenet", text, "val/val_annotations.txt", message)


@pytest.mark.parametrize(
    ("model", "content", "message"),
    [
        ("lstm_ibm", PRICES.replace(",2,1,3,9", ",n/a,1,3,9"), "line 4: High is 'n/a', not a number"),
        ("diabetes_ann", PIMA.replace("Outcome", "Result"), "has no column 'Outcome'"),
        ("tweet_span", JPEG.decode("latin-1"), "is a JPEG image where text is needed"),
    ],
    ids=["number", "target", "image"],
)
def test_bad_data_is_one_line_and_leaves_no_study(model, content, message, tmp_path, own_cache):
    (tmp_path / "d.csv").write_text(content, "latin-1")
    (said,) = run("run", "torch", model, tmp_path / "d.csv", "--out", tmp_path / "s", check=2).stderr.splitlines()
    assert said.startswith("framework-compare: ") and message in said
    assert not (tmp_path / "s").exists()
