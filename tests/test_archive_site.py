"""The site of an archive as files: pages and JSON, ratios within studies only, coverage, what is escaped, how large it is."""

import html.parser
import json
import re

import pytest
from command_line import run
from drawn_study import SPREAD
from published_study import Hostile, archive, study, submission

from framework_compare.archive import answers, entries, site, validate
from framework_compare.errors import StudyError, UsageError
from framework_compare.report import provenance

HOSTILE = "</script><img src=x onerror=window.broken=1>"
MIB = 2**20


class Links(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found, self.ids = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.found += [given[name] for name in ("href", "src") if given.get(name)]
        self.ids.add(given.get("id"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    place = tmp_path_factory.mktemp("archive")
    with pytest.MonkeyPatch.context() as patch:
        folder = archive(place / "archive", place, patch)
    return folder, place / "site", site.build(folder, place / "site")


@pytest.fixture(scope="module")
def pages(whole):
    _, folder, _ = whole
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.html")}


def test_every_page_has_json_beside_it_and_every_link_leads_somewhere(whole, pages):
    _, folder, built = whole
    assert built.submissions == 6 and built.pages == len(pages) and not built.refused
    anchors = {name: Links(text) for name, text in pages.items()}
    for name, links in anchors.items():
        assert json.loads((folder / name).with_suffix(".json").read_text())
        for link in links.found:
            assert not re.match(r"[a-z]+:|//", link), f"{name} leads to {link}"
            path, _, anchor = link.partition("#")
            target = ((folder / name).parent / path).resolve() if path else folder / name
            assert target.is_file(), f"{name} leads to {link}, which is not there"
            if anchor:
                assert anchor in anchors[target.relative_to(folder).as_posix()].ids, f"{name}: {link}"


def test_there_is_a_page_of_each_kind_and_none_is_large(pages, whole):
    names = [name for name in pages if "/" in name]
    kinds = {kind: sum(name.startswith(f"{kind}/") for name in names) for kind in (*site.GROUPS, "submissions")}
    assert kinds == {"models": 2, "frameworks": 3, "machines": 2, "versions": 5, "months": 1, "submissions": 6}
    _, folder, _ = whole
    assert max(path.stat().st_size for path in folder.rglob("*.html")) < MIB
    assert (folder / "assets" / "vega.js").stat().st_size < MIB
    for name, text in pages.items():
        if not name.startswith("submissions/"):
            assert "epoch s" not in text and not re.search(r"\d s\b", text), name


def test_ratios_are_those_of_the_studies_and_replication_counts_machines(whole, pages):
    archive_folder, _, _ = whole
    checked = [one.checked for one in validate.validate(archive_folder)]
    pairs = [pair for one in checked for pair in entries.pairs_of(one, entries.entry_of(one))]
    (both,) = [
        one
        for several in entries.spreads(one for one in pairs if one.model == "alexnet").values()
        for one in several
        if (one.first, one.second) == ("torch", "jax")
    ]
    ratios = sorted(one.ratio for one in both.pairs)
    assert ratios == pytest.approx([1.3 / 1.2, 1.3, 1.6], rel=(1 + SPREAD) / (1 - SPREAD) - 1)
    assert both.machines == 2 and both.shown_on == (2, 0)
    assert both.badge == "PyTorch faster: replicated on 2 machines"
    assert both.badge in pages["models/alexnet.html"]
    assert "MXNet faster: significant on 1 machine" in pages["models/alexnet.html"]
    assert "no significant difference" in pages["models/vgg16.html"]


def pair(machine, ratio, first="torch", second="jax", model="m", study="i"):
    versions, ends = ((first, "1"), (second, "1")), (1.1, 1.3)
    return entries.Pair(study, "d", machine, model, "CPU", "c", first, second, versions, ratio, *ends, True, True, True)


def test_pages_say_who_is_faster_and_what_a_submission_states(pages):
    page = pages["index.html"]
    assert "Convolutional networks on CPU" in page and "Fastest of 3 frameworks: MXNet (1 of 2 settings)." in page
    assert "2 settings on 2 machines, 1 of them replicated on another. Not measured: TensorFlow, PaddlePaddle" in page
    assert "Transformers on CPU" in page and "Convolutional networks on GPU" in page and "Dense networks on GPU" in page
    unverified = [text for name, text in pages.items() if name.startswith("submissions/") and "Stated:" in text]
    assert len(unverified) == 1 and "not verified" in unverified[0]
    for name, text in pages.items():
        if name.startswith("submissions/"):
            assert "framework-compare run --from study.toml" in text and "records.json" in text
            assert 'id="repeat"' in text and "commit 000000000000" in text


def test_an_answer_counts_settings_and_names_the_opposite_on_another_machine():
    known = [
        pair("a", 2.0, model="alexnet"),
        pair("a", 4.0, model="alexnet", study="j"),
        pair("b", 5.0, model="alexnet"),
        pair("a", 0.5, model="vgg16"),
        pair("a", 0.5, model="vgg16")._replace(shown=False, second="mxnet"),
        pair("a", 9.0, "jax@1", "jax@2", model="vgg16"),
        pair("a", 9.0, model="lstm_google")._replace(counts=False),
    ]
    (found,) = answers.answers(known)
    assert (found.kind, found.settings, found.machines, found.replicated) == ("Convolutional networks", 2, 2, 1)
    assert found.fastest == {"PyTorch": 1}, "of the other model nothing tells MXNet from the rest"
    assert found.slowdowns == {"torch": 1.5, "mxnet": 1.0, "jax": 2.5}
    assert "Convolutional networks on CPU" not in answers.gaps([found]) and len(answers.gaps([found])) == 9
    (own,) = answers.answers([pair("a", 2.0)])
    assert own.kind == "Models of users" and own.sentence == "Fastest of 2 frameworks: PyTorch."
    assert answers.answers([pair("a", 1.0)._replace(shown=False)])[0].sentence.startswith(
        "No framework is significantly faster"
    )
    ahead = [pair("a", 1.2, "jax", "torch"), pair("a", 1.5, "jax", "mxnet")._replace(shown=False)]
    assert not answers.answers(ahead)[0].fastest, "of MXNet nothing is shown"
    chain = answers.answers([pair("a", 1.2, "jax", "torch"), pair("b", 1.2, "torch", "mxnet")])[0]
    assert chain.fastest == {"JAX": 1}
    (found,) = entries.spreads([pair("a", 1.2), pair("b", 0.8), pair("c", 1.3)])["c"]
    assert found.badge == "PyTorch faster: replicated on 2 machines, the opposite on 1"
    (mixed,) = entries.spreads([pair("a", 1.2), pair("a", 0.8)])["c"]
    assert mixed.badge == "no significant difference"
    assert entries.spreads([pair("a", 1.2)._replace(counts=False)])["c"][0].badge.startswith("not counted")


def test_releases_machines_and_conditions_have_names():
    assert entries.release("jax@0.9.2", "0.9.2") == "JAX 0.9.2" == entries.release("jax", "0.9.2")
    versions = pair("a", 2.0, "jax@0.9.2", "jax@0.10.2")
    assert versions.label == "JAX 0.9.2 / JAX 0.10.2"
    assert list(site._NAMES["frameworks"](versions)) == ["jax"]
    devices = [{"name": "NVIDIA H100", "memory_bytes": 1, "compute_capability": "9.0"}] * 2
    machine = {"cpu": "A processor", "available_cores": 8, "gpus": {"driver": "580.1", "devices": devices}}
    assert entries.machine_name(machine) == "A processor, 8 cores, 2 x NVIDIA H100"
    assert entries.machine_name({**machine, "cpu": "A processor (AVX-512)"}) == entries.machine_name(machine)
    assert provenance.gpu_names(machine) == ["NVIDIA H100"] * 2 and provenance.gpu_names({"gpus": None}) == []
    settings = {"dataset": "cifar10", "device": "cpu", "batch_size": 32, "precision": "fp32", "optimizer": "adam"}
    more = {"pipeline": "shared", "flip": "none", "crop": "none", "loss_function": "cross_entropy", "epochs": 2}
    assert entries.condition({**settings, **more}, "cifar_cnn") == "CPU, cifar10, batch 32, fp32, 2 epochs"
    assert "adam" in entries.condition({**settings, **more}, "alexnet")


def test_a_study_that_states_a_disturbance_is_no_answer_and_no_replication(tmp_path, monkeypatch):
    calm = submission(study(tmp_path / "c", seed=50), tmp_path / "out", monkeypatch)
    (result,) = validate.validate(calm)
    entry = entries.entry_of(result.checked)
    assert [one.counts for one in entries.pairs_of(result.checked, entry)] == [True]
    assert [one.counts for one in entries.pairs_of(result.checked, entry._replace(allowed=("disturbed",)))] == [False]


def test_trends_take_versions_in_their_order_and_gaps_are_visible(pages, whole):
    assert "Over versions: AlexNet" in pages["frameworks/torch.html"]
    assert entries.version_key("2.9.1") < entries.version_key("2.13.0+cpu")
    _, folder, _ = whole
    document = json.loads((folder / "coverage.json").read_text())
    assert pages["coverage.html"].count(">gap<") == sum(document["gaps"].values()) > 100
    rows = dict(document["devices"]["cpu"])
    assert rows["alexnet"][document["frameworks"].index("torch")] == 4


def test_whatever_a_submission_says_is_text(tmp_path, monkeypatch):
    honest = submission(study(tmp_path / "s"), tmp_path / "out", monkeypatch)
    one = Hostile(honest, tmp_path)
    one.change("manifest.json", "allowed", to={"unverified": "no cell is"})
    # Checks that would refuse it are passed by, as if they had a hole.
    monkeypatch.setattr("framework_compare.archive.documents.fault_of", lambda text: "")
    monkeypatch.setattr("framework_compare.archive.publish.slug_of", lambda *names: one.folder.name.rpartition("-")[0])
    document = one.read("study.json")
    document["machine"]["cpu"] = HOSTILE
    for verdict in document["verdicts"]:
        verdict.update(sentence=HOSTILE, faster=HOSTILE)
    for cell in document["cells"]:
        cell.update(**dict.fromkeys(("framework", "framework_version", "model", "parity", "device"), HOSTILE))
    one.write("study.json", document)
    site.build(one.folder, tmp_path / "site")
    for path in (tmp_path / "site").rglob("*.html"):
        assert "<img" not in path.read_text(), path
    for path in (tmp_path / "site" / "assets").glob("found-*.js"):
        assert path.read_text().startswith("window.found([[") and path.read_text().count("\n") == 1


def test_a_site_replaces_no_other_folder_and_needs_a_submission(whole, tmp_path):
    archive_folder, _, _ = whole
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match="is not a site"):
        site.build(archive_folder, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    said = run("site", archive_folder, "--out", tmp_path / "new").stdout
    assert "6 submissions" in said
    assert "6 submissions" in run("site", archive_folder, "--out", tmp_path / "new", "--recompute").stdout
    (tmp_path / "archive" / "x").mkdir(parents=True)
    with pytest.raises(StudyError, match="no valid submission"):
        site.build(tmp_path / "archive", tmp_path / "site")
    assert not (tmp_path / "site").exists()
