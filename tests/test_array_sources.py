"""The users' own files: public data beside the project give their documents' counts, forms are read alike."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from bounds import decimals, rounding
from real_arrays import baseline, known, real

from framework_compare.datasets import conll, diabetes, prices, text_windows, tweets
from framework_compare.datasets.arrays import ArrayData, load
from framework_compare.errors import DataError, UsageError


def test_stocks_give_the_windows_of_the_notebooks():
    data = load("ibm-prices", real("stocks/IBM.csv"))
    assert (len(data.train), len(data.validation)) == (2709, 251)
    assert data.facts["days"] == {"train": 2769, "validation": 251} and data.facts["column"] == "High"
    assert data.task.inputs[0].shape == (60, 1) and data.task.loss == "mse"
    assert known(data) == ["IBM 2000-2013, bokeh-sampledata 2026.1"] and data.facts["generated"] is False
    data = load("google-prices", real("stocks/GOOG.csv"))
    assert (len(data.train), len(data.validation)) == (1688, 430) and data.task.inputs[0].shape == (30, 1)


def test_prices_are_scaled_by_the_training_part_only_and_come_back_in_dollars():
    series = prices.read(real("stocks/IBM.csv"), "High")
    assert len(series.values) == 3270
    data = load("ibm-prices", real("stocks/IBM.csv"))
    low, high = data.facts["scaling"]["minimum"], data.facts["scaling"]["maximum"]
    days = series.values[-3020:]
    assert (low, high) == (days[:2769].min(), days[:2769].max())
    assert data.train.target.min() >= 0 and data.train.inputs["window"].max() == 1 and data.validation.target.max() > 1
    np.testing.assert_allclose(
        data.validation.target[:, 0] * (high - low) + low, days[-251:], rtol=rounding(3, np.float32)
    )
    # last day's price, in dollars, from the file itself
    expected = np.sqrt(np.mean((days[-251:] - days[-252:-1]) ** 2))
    allowed = rounding(1, np.float32) * days[-251:].max()  # of a price; what is left of two is much smaller
    assert baseline(data)["rmse"] == pytest.approx(expected, abs=allowed)
    assert expected == pytest.approx(1.9067, abs=decimals(4))
    assert data.baseline.name == "last day's price"


def prices_csv(folder: Path, days: int = 12) -> Path:
    rows = [f"2016-12-{day:02},1,{day}.5,1,{day},100,IBM" for day in range(1, days + 1)]
    (folder / "prices.csv").write_text("\n".join(["Date,Open,High,Low,Close,Volume,Name", *rows, ""]))
    return folder / "prices.csv"


def test_a_window_of_the_chosen_column_holds_the_days_before_its_target(tmp_path):
    data = load("prices", prices_csv(tmp_path), window=3, validation=2)
    assert (len(data.train), len(data.validation)) == (7, 2)
    back = data.train.inputs["window"][0, :, 0] * 9 + 1
    np.testing.assert_allclose(back, [1, 2, 3], rtol=rounding(3, np.float32))
    assert data.train.target[0, 0] * 9 + 1 == pytest.approx(4)
    np.testing.assert_allclose(data.validation.inputs["window"][0, :, 0] * 9 + 1, [8, 9, 10], rounding(3, np.float32))
    np.testing.assert_array_equal(data.baseline.outputs[0, 0], data.validation.inputs["window"][0, -1, 0])
    path = prices_csv(tmp_path)
    assert load("prices", path, window=3, column="High").facts["scaling"]["minimum"] == 1.5


@pytest.mark.parametrize("validation", [4, 1 / 3])
def test_the_split_may_be_days_or_a_share(tmp_path, validation):
    data = load("prices", prices_csv(tmp_path), window=3, validation=validation)
    assert data.facts["days"] == {"train": 8, "validation": 4}
    assert data.facts["dates"] == ["2016-12-01", "2016-12-09", "2016-12-12"]


@pytest.fixture(scope="session")
def positive() -> ArrayData:
    return load("tweet-span", real("tweet_sentiment_extraction"))


def test_the_positive_tweets_are_those_of_the_notebook(positive):
    facts = positive.facts
    assert facts["tweets"] == 8375 == len(positive.train) + len(positive.validation)
    assert facts["rows"] == 27481
    assert facts["rows_by_sentiment"] == {"positive": 8582, "negative": 7781, "neutral": 11118}
    assert positive.task.inputs[0].shape == (33,) and positive.task.inputs[0].vocabulary == 8000
    assert known(positive) == ["Kaggle tweet-sentiment-extraction, train.csv"]
    target, tokens = positive.train.target, positive.train.inputs["tokens"]
    assert ((target == 1).any(axis=1)).all()
    np.testing.assert_array_equal(target == -1, tokens == 0)
    assert tokens.max() == 7999
    assert all(isinstance(value, (bool, int, str, list, dict)) for value in positive.facts.values())
    assert len(str(positive.facts)) < 1000


def test_the_whole_tweet_has_the_jaccard_that_the_texts_have(positive):
    path = real("tweet_sentiment_extraction") / "train.csv"
    chosen, _ = tweets.read(path)

    def by_text(tweet) -> float:
        words, right = set(tweet.words), set(tweet.selected)
        return len(words & right) / len(words | right)

    assert np.mean([by_text(tweet) for tweet in chosen]) == pytest.approx(0.303216, abs=decimals(6))
    values = baseline(positive)
    assert positive.baseline.name == "whole tweet" and values["word_jaccard"] == pytest.approx(0.3046, abs=decimals(4))


def tweet_csv(folder: Path, rows: list) -> Path:
    lines = ["textID,text,selected_text,sentiment", *(",".join(f'"{cell}"' for cell in row) for row in rows)]
    (folder / "train.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "train.csv"


def test_spans_overlap_the_selected_text_and_the_vocabulary_is_of_the_training_part(tmp_path):
    path = tweet_csv(tmp_path, [("1", " Aa bb  Cc dd", "b  Cc", "positive"), ("2", "x y", "x", "positive")])
    (tweet,), counts = tweets.read(path)
    assert tweet.words == ("aa", "bb", "cc", "dd") and tweet.in_span == (0, 1, 1, 0) and tweet.selected == ("b", "cc")
    assert counts["rows"] == 2
    path = tweet_csv(tmp_path, [(i, f"good morning word{i}", "good", "positive") for i in range(30)])
    data = load("tweet-span", path)
    assert data.facts["vocabulary"] == 2 + 27
    assert (data.validation.inputs["tokens"][:, 2] == 1).all() and data.train.inputs["tokens"].min() >= 2
    words = data.validation.extras["words"]
    assert len(set(words[:, 2].tolist())) == 3  # Jaccard still tells them apart


@pytest.fixture(scope="session")
def entities() -> ArrayData:
    return load("tweet-ner", real("ner_broad_twitter"))


def test_the_broad_twitter_corpus_has_its_published_counts(entities):
    facts = entities.facts
    assert facts["sentences"] == {"train": 6338, "validation": 1001, "test": 2001}
    assert sum(facts["tokens"].values()) == 150_388 and sum(facts["entities"].values()) == 14_885
    assert facts["tags"] == ["O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-PER", "I-PER"]
    assert entities.task.inputs[0].shape == (57,) and (len(entities.train), len(entities.validation)) == (6338, 1001)
    assert known(entities) == [f"Broad Twitter Corpus, {part}" for part in ("train", "dev", "test")]
    values = baseline(entities)
    assert values["span_f1"] == 0 and 0.8 < values["token_accuracy"] < 0.9
    assert (entities.train.target >= 0).sum() == entities.facts["tokens"]["train"]


def conll_folder(folder: Path, train: str, dev: str = "a\tO\nb\tB-PER\n") -> Path:
    (folder / "my.train").write_text(train)
    (folder / "my.dev").write_text(dev)
    return folder


def test_conll_is_read_by_tabs_or_blanks_and_pads_have_no_tag(tmp_path):
    path = conll_folder(tmp_path, "-DOCSTART- -X- O\n\nAnn NNP B-PER\nsmiles VBZ O\r\n\n\n two words\tB-LOC\nx\tI-LOC")
    first, second = conll.read(path / "my.train")
    assert (first.words, first.tags, first.line) == (("ann", "smiles"), ("B-PER", "O"), 3)
    assert (second.words, second.tags) == (("two words", "x"), ("B-LOC", "I-LOC"))
    data = load("tweet-ner", conll_folder(tmp_path, "a\tB-PER\nb\tO\nc\tO\n\na\tO\n"))
    np.testing.assert_array_equal(data.train.target, [[1, 0, 0], [0, -1, -1]])
    np.testing.assert_array_equal(data.validation.inputs["tokens"], [[2, 3, 0]])


def test_diabetes_has_its_published_counts():
    data = load("diabetes", real("diabetes"))
    assert (data.facts["rows"], data.facts["positive"]) == (768, 268)
    assert data.facts["missing"] == {"Glucose": 5, "BloodPressure": 35, "SkinThickness": 227, "Insulin": 374, "BMI": 11}
    assert (len(data.train), len(data.validation)) == (614, 154) and known(data) == ["Pima Indians diabetes"]
    assert data.baseline.name == "majority class" and baseline(data)["auc"] == 0.5
    table, outcome = diabetes.read(real("diabetes/diabetes.csv"))
    everyone = np.arange(768)
    data = diabetes.prepare(table, outcome, everyone, everyone, facts={})
    assert round(100 * baseline(data)["accuracy"], 1) == 65.1


def test_medians_and_scaling_are_of_the_training_rows_and_folds_cover_all():
    table, outcome = diabetes.read(real("diabetes/diabetes.csv"))
    train, held = np.arange(500), np.arange(500, 768)
    first = diabetes.prepare(table, outcome, train, held, facts={})
    changed = table.copy()
    changed[500:] *= 7
    second = diabetes.prepare(changed, outcome, train, held, facts={})
    np.testing.assert_array_equal(first.train.inputs["features"], second.train.inputs["features"])
    rows, stored = first.train.inputs["features"].astype(np.float64), rounding(1, np.float32)
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=stored)
    np.testing.assert_allclose(rows.std(axis=0), 1, rtol=stored)
    glucose = table[:500, 1]
    assert first.facts["medians"]["Glucose"] == np.median(glucose[glucose > 0])
    pregnancies = first.train.inputs["features"][table[:500, 0] == 0, 0]
    assert (pregnancies < -1).all()  # zero is a number there
    parts = diabetes.rows_of_folds(768, 3, seed=5)
    assert sorted(np.concatenate([held for _, held in parts]).tolist()) == list(range(768))
    assert all(not set(train) & set(held) and len(train) + len(held) == 768 for train, held in parts)
    np.testing.assert_array_equal(parts[1][1], diabetes.rows_of_folds(768, 3, seed=5)[1][1])


def test_the_next_word_of_tweets_has_twenty_words_before_it():
    data = load("tweet-words", real("tweet_sentiment_extraction"))
    assert data.task.inputs[0].shape == (20,) and data.task.outputs == 1000
    assert sum(data.facts["texts"].values()) == 27_480  # one row has no text
    assert data.train.target.min() >= 2 and len(data.train) > 50_000 and baseline(data)["accuracy"] < 0.12


def test_any_text_gives_windows_unless_it_is_too_short(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(["One two three four"] * 40))
    data = load("tweet-words", tmp_path / "a.txt", window=4, stride=1, vocabulary=10)
    tokens, target = data.train.inputs["tokens"], data.train.target
    follows = {tuple(row): label for row, label in zip(tokens.tolist(), target.tolist())}
    assert len(follows) == 5  # the four words and the end, in turn
    for row, label in follows.items():
        assert label == row[0] or len(set(row)) == 4 and label not in row
    assert data.facts["vocabulary"] == 5
    (tmp_path / "a.txt").write_text("a" * 1000)
    with pytest.raises(DataError, match="1000 tokens are too few for windows of 128 in both splits"):
        load("text-bytes", tmp_path / "a.txt")


def test_each_token_of_a_window_is_followed_by_its_target():
    data = load("text-bytes", real("../text") / "text.txt")
    assert data.facts["different"] == 76 and data.facts["train_tokens"] + data.facts["validation_tokens"] == 883_028
    tokens, target = data.train.inputs["tokens"], data.train.target
    assert (tokens[:, 1:] == target[:, :-1]).all() and (tokens[1:, 0] == target[:-1, -1]).all()
    assert bytes(tokens[0].astype(np.uint8)) == (real("../text") / "text.txt").read_bytes()[:128]
    assert 15 < baseline(data)["perplexity"] < 25
    data = text_windows.token_windows("two", np.tile([0, 1], 200), 2, 8, {})
    assert baseline(data)["perplexity"] == pytest.approx(2, rel=rounding(1, np.float32))
    assert baseline(data.limited(5)) == baseline(data)


def test_a_wrong_option_of_a_text_is_one_sentence():
    for options, message in (
        ({"window": 0}, "window is 0; allowed: a whole number of at least 1"),
        ({"vocabulary": 255}, "vocabulary is 255; allowed: a whole number of at least 256"),
    ):
        with pytest.raises(UsageError, match=message):
            load("text-bytes", **options)


def test_folders_of_texts_and_packed_files_are_read_like_one_plain_text(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt"):
        (tmp_path / name).write_text(name[0] * 2000)
    data = load("text-bytes", tmp_path)
    assert bytes(data.train.inputs["tokens"][0].astype(np.uint8)) == b"a" * 128
    assert [one["file"] for one in data.facts["source"]] == ["a.txt", "b.txt"]
    plain = prices_csv(tmp_path)
    packed = tmp_path / "prices.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    np.testing.assert_array_equal(prices.read(plain, "Close").values, prices.read(packed, "Close").values)
