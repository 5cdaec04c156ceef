"""One call with models for folders of images and workloads: each takes its own data and the settings it has a use for."""

import pytest

from framework_compare.errors import UsageError
from framework_compare.plan import planning


@pytest.fixture
def plan(tiny, images, own_cache):
    def planned(dataset=None, models=("linear", "diabetes_ann"), **settings):
        return planning.plan("torch", models, "cpu", dataset, {"threads": 1, **settings}, make=False)

    return planned


def test_each_model_trains_on_the_data_it_is_for(plan):
    found = plan()
    assert [(cell.model, cell.dataset) for cell in found.cells] == [
        ("linear", "fire-smoke-small"),
        ("diabetes_ann", "diabetes"),
    ]
    assert {name: len(data) for name, data in found.datasets.items()} == {"fire-smoke-small": 791, "diabetes": 614}
    images, rows = (cell.config for cell in found.cells)
    assert (images.optimizer, images.loss, images.pipeline) == ("sgd", "cross_entropy", "native")
    assert (rows.optimizer, rows.loss, rows.pipeline) == ("adam", "binary_cross_entropy", "shared")


def test_a_data_set_goes_to_the_models_that_can_read_it(plan):
    cells = plan(["fire-smoke-tiny", "diabetes"]).cells
    assert [(cell.model, cell.dataset) for cell in cells] == [
        ("linear", "fire-smoke-tiny"),
        ("diabetes_ann", "diabetes"),
    ]


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        ("fire-smoke-tiny", "data set 'fire-smoke-tiny' is not for diabetes_ann; allowed: diabetes, or the path"),
        ("diabetes", "data set 'diabetes' is not for linear; allowed: fire-smoke-small, or the path"),
        (
            ["fire-smoke-tiny", "diabetes", "mnist"],
            "data set 'mnist' is not used by any of the models linear, diabetes_ann",
        ),
    ],
    ids=str,
)
def test_no_model_and_no_data_set_is_left_out_in_silence(plan, dataset, said):
    with pytest.raises(UsageError, match=said):
        plan(dataset)


def test_a_setting_is_for_the_models_that_have_a_use_for_it(plan):
    images, rows = plan(image_size=32, flip="none", epochs=2).cells
    assert (images.config.image_size, images.config.flip, images.config.epochs) == (32, "none", 2)
    assert (rows.config.image_size, rows.config.epochs) == (0, 2)
    with pytest.raises(UsageError, match="image_size is 32; diabetes_ann does not use it"):
        plan(models=["diabetes_ann", "lstm_ibm"], image_size=32)


def test_models_of_one_data_set_share_it(plan):
    found = plan(models=["lstm_ibm", "gru_ibm", "linear"])
    assert list(found.datasets) == ["ibm-prices", "fire-smoke-small"]
    assert [cell.dataset for cell in found.cells] == ["ibm-prices", "ibm-prices", "fire-smoke-small"]
