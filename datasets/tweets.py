"""Kaggle's tweet-sentiment-extraction: which words of a tweet carry its sentiment.

Each word between blanks is one token; it is in the span if it overlaps selected_text. No message or fact holds text.
"""

import dataclasses
import re
from pathlib import Path
from typing import Sequence

import numpy as np

from framework_compare.datasets.arrays import ArrayData, split_indices
from framework_compare.datasets.source_files import Row, read_or_generate, read_rows
from framework_compare.datasets.vocabulary import exact_words, tagged_words, words_of
from framework_compare.errors import DataError
from framework_compare.protocol import Fields

SENTIMENTS = ("positive", "negative", "neutral")
LONGEST = 33  # words of a tweet of train.csv
LEAST_WORDS = 3  # of shorter ones the notebook answers with the whole text


@dataclasses.dataclass(frozen=True)
class Tweet:
    """Words in lower case, for each whether it is in the span, and the words of selected_text."""

    words: tuple[str, ...]
    in_span: tuple[int, ...]
    selected: tuple[str, ...]


def tweet_span(path: Path | None = None, *, vocabulary: int = 8000, seed: int = 0) -> ArrayData:
    """Tokens (T,) and for each 0 (out) or 1 (in the span), of the positive tweets with 3 words or more.

    path is train.csv (textID,text,selected_text,sentiment), or a folder with it; Kaggle's test.csv has no
    selected_text, so a tenth is drawn by `seed`. T is the longest tweet: 33.
    """
    (tweets, counts), facts = read_or_generate(path, ("train.csv",), "the labelled tweets", read, generate, seed)
    steps = LONGEST if path is None else max(len(tweet.words) for tweet in tweets)
    return prepare(tweets, vocabulary, steps, seed, {**facts, **counts, "sentiment": SENTIMENTS[0]})


def read(path: Path) -> tuple[list[Tweet], Fields]:
    """Positive tweets with 3 words or more, and counts of all rows by sentiment."""
    rows = read_rows(path, ("text", "selected_text", "sentiment"))
    counts = dict.fromkeys(SENTIMENTS, 0)
    for row in rows:
        if row.values["sentiment"] not in SENTIMENTS:
            raise DataError(f"{row.place}: sentiment is none of {', '.join(SENTIMENTS)}; fix or remove the row")
        counts[row.values["sentiment"]] += 1
    chosen = [row for row in rows if row.values["sentiment"] == SENTIMENTS[0]]
    tweets = [_tweet(row) for row in chosen if len(row.values["text"].split()) >= LEAST_WORDS]
    if not tweets:
        raise DataError(f"file {str(path)!r} has no {SENTIMENTS[0]} tweet of {LEAST_WORDS} words or more")
    return tweets, {"rows": len(rows), "rows_by_sentiment": counts}


def generate(seed: int) -> tuple[list[Tweet], Fields]:
    """8,375 tweets of made-up words; the span is 1 to 6 of their own kind."""
    state = np.random.RandomState([seed & 0xFFFFFFFF, 0])
    return [_generated_tweet(state) for _ in range(8375)], {}


def prepare(tweets: Sequence[Tweet], vocabulary: int, steps: int, seed: int, facts: Fields) -> ArrayData:
    """Arrays of tweets; the vocabulary is of the training part."""
    parts = split_indices(len(tweets), max(1, round(0.1 * len(tweets))), seed, name="tweets")
    train, held = ([tweets[i] for i in part] for part in parts)
    return tagged_words(
        "tweet-span",
        "in_span",
        ("out", "in"),
        ("word_jaccard", "token_accuracy", "token_f1"),
        ([(tweet.words, tweet.in_span) for tweet in train], [(tweet.words, tweet.in_span) for tweet in held]),
        ("whole tweet", (0, 1)),
        steps=steps,
        vocabulary=vocabulary,
        facts={**facts, "tweets": len(tweets), "tokens": sum(len(tweet.words) for tweet in tweets)},
        extras=[_as_spelt(part, steps) for part in (train, held)],
    )


def _tweet(row: Row) -> Tweet:
    text, selected = row.values["text"], row.values["selected_text"]
    start = text.find(selected)
    if start < 0 or not selected.strip():
        raise DataError(f"{row.place}: selected_text is not part of text; fix or remove the row")
    end = start + len(selected)
    places = [one.span() for one in re.finditer(r"\S+", text)]
    return Tweet(
        tuple(text[first:last].lower() for first, last in places),
        tuple(int(first < end and last > start) for first, last in places),
        tuple(words_of(selected)),
    )


def _as_spelt(tweets: Sequence[Tweet], steps: int) -> dict[str, np.ndarray]:
    """Return what Jaccard counts: words as they were spelt, not as tokens, since rare ones share a token."""
    exact, selected = exact_words([[tweet.words for tweet in tweets], [tweet.selected for tweet in tweets]])
    wide = np.full((len(tweets), steps), -1, np.int32)
    wide[:, : exact.shape[1]] = exact
    return {"words": wide, "selected_words": selected}


def _generated_tweet(state: np.random.RandomState) -> Tweet:
    total = state.randint(3, 34)
    span = state.randint(1, min(7, total + 1))
    start = state.randint(total - span + 1)
    words = [f"w{int(6000 * share**3)}" for share in state.random_sample(total)]
    for place in range(start, start + span):
        words[place] = f"s{int(600 * state.random_sample() ** 2)}"
    in_span = [int(start <= place < start + span) for place in range(total)]
    return Tweet(tuple(words), tuple(in_span), tuple(words[start : start + span]))
