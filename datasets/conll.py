"""Named entities in CoNLL form: a word and its BIO tag on a line, an empty line after each sentence."""

import dataclasses
import re
from pathlib import Path

import numpy as np

from framework_compare.datasets.arrays import ArrayData
from framework_compare.datasets.source_files import one_file, read_lines, source, stand_in
from framework_compare.datasets.vocabulary import tagged_words
from framework_compare.errors import DataError
from framework_compare.protocol import Fields

LONGEST = 57  # of the Broad Twitter Corpus: generated sentences get its shape
_TAG = re.compile(r"O|[BI]-[A-Za-z_]{1,30}")
FILES = {"train": ("*train*",), "validation": ("*dev*", "*valid*", "*testa*"), "test": ("*test", "*test.*", "*testb*")}


@dataclasses.dataclass(frozen=True)
class Sentence:
    """Words in lower case, a tag for each; where it is from, for messages: a file and the line of the first word."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    origin: str
    line: int


def conll(path: Path | None = None, *, vocabulary: int = 8000, seed: int = 0) -> ArrayData:
    """Tokens (T,) and a tag for each; T is the longest sentence.

    path is a folder with one train and one dev (or valid) file; a test file is counted in the facts and not used. Tags
    are those of the training file. Words that are not among its most frequent share one token.
    """
    if path is None:
        sentences, facts = generate(seed), stand_in(seed)
    else:
        if not path.is_dir():
            raise DataError(f"{str(path)!r} is a file; a folder with a train and a dev file in CoNLL form is needed")
        files = {split: one_file(path, FILES[split], f"the {split} part") for split in ("train", "validation")}
        test = [file for pattern in FILES["test"] for file in sorted(path.glob(pattern)) if file not in files.values()]
        files.update({"test": test[0]} if test else {})
        sentences = {split: read(file) for split, file in files.items()}
        facts = {"generated": False, "source": source(files.values())}
    return prepare(sentences, vocabulary, LONGEST if path is None else None, facts)


def read(path: Path) -> list[Sentence]:
    """Sentences of a file; columns are parted by tabs, or by blanks where a line has no tab; the last is the tag."""
    sentences: list[Sentence] = []
    words: list[str] = []
    tags: list[str] = []
    start = 1
    for line_number, line in enumerate([*read_lines(path), ""], 1):
        if not line.strip() or line.startswith("-DOCSTART-"):
            if words:
                sentences.append(Sentence(tuple(words), tuple(tags), f"file {str(path)!r}", start))
                words, tags = [], []
            start = line_number + 1
            continue
        place, columns = f"file {str(path)!r}, line {line_number}", line.split("\t") if "\t" in line else line.split()
        if len(columns) < 2:
            raise DataError(
                f"{place}: {len(columns)} column where a word and its tag are needed; fix or remove the line"
            )
        words.append(columns[0].strip().lower())
        tags.append(columns[-1].strip())
        if not _TAG.fullmatch(tags[-1]):  # not repeated in the message: it may be a word
            raise DataError(
                f"{place}: its last column is not a BIO tag; allowed: O, and B- or I- with a kind of entity"
            )
    if not sentences:
        raise DataError(f"file {str(path)!r} has no sentences; give one with data")
    return sentences


def generate(seed: int) -> dict[str, list[Sentence]]:
    """6,338 + 1,001 sentences of made-up words: names of three kinds, one in two after a word that announces it."""
    state = np.random.RandomState(seed & 0xFFFFFFFF)
    return {
        split: [_generated_sentence(state, split) for _ in range(count)]
        for split, count in (("train", 6338), ("validation", 1001))
    }


def prepare(sentences: dict[str, list[Sentence]], vocabulary: int, length: int | None, facts: Fields) -> ArrayData:
    """Arrays of the sentences of splits train and validation; DataError names a tag outside the tag set."""
    train, held = sentences["train"], sentences["validation"]
    entities = sorted({tag[2:] for sentence in train for tag in sentence.tags if tag != "O"})
    if not entities:
        raise DataError("the training part has no entity, every tag is O; there is nothing to learn")
    tags = ("O", *(f"{letter}-{kind}" for kind in entities for letter in "BI"))
    labels = {tag: label for label, tag in enumerate(tags)}
    for sentence in (*train, *held):
        for line, tag in enumerate(sentence.tags, sentence.line):
            if tag not in labels:
                raise DataError(
                    f"{sentence.origin}, line {line}: tag {tag} is not in the tag set; allowed: {', '.join(tags)}"
                )
    tagged = [[(row.words, [labels[tag] for tag in row.tags]) for row in part] for part in (train, held)]
    every = {split: [tag for row in rows for tag in row.tags] for split, rows in sentences.items()}
    return tagged_words(
        "tweet-ner",
        "tags",
        tags,
        ("token_accuracy", "span_f1"),
        (tagged[0], tagged[1]),
        ("no entity", [1.0] + [0.0] * (len(tags) - 1)),
        steps=length or max(len(sentence.words) for sentence in (*train, *held)),
        vocabulary=vocabulary,
        facts={
            **facts,
            "sentences": {split: len(rows) for split, rows in sentences.items()},
            "tokens": {split: len(found) for split, found in every.items()},
            "entities": {split: sum(tag.startswith("B-") for tag in found) for split, found in every.items()},
        },
    )


def _generated_sentence(state: np.random.RandomState, split: str) -> Sentence:
    words: list[str] = []
    tags: list[str] = []
    for _ in range(state.randint(1, 9)):
        plain = [f"w{int(3000 * share**2)}" for share in state.random_sample(state.randint(1, 5))]
        words += plain
        tags += ["O"] * len(plain)
        if state.random_sample() < 0.3:
            kind = ("LOC", "ORG", "PER")[state.randint(3)]
            if state.random_sample() < 0.5:
                words.append({"LOC": "in", "ORG": "by", "PER": "with"}[kind])
                tags.append("O")
            names = [f"{kind.lower()}{int(800 * share**2)}" for share in state.random_sample(state.randint(1, 3))]
            words += names
            tags += [f"B-{kind}", *[f"I-{kind}"] * (len(names) - 1)]
    return Sentence(tuple(words), tuple(tags), f"generated {split} part", 0)
