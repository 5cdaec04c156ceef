"""What TensorFlow's adapter does around tf.data, without TensorFlow."""

import threading

from processes import wait_for

from framework_compare.adapters.tensorflow.pipeline import one_pass


class Dataset:
    """An iterable whose iterators note which thread deletes them."""

    def __init__(self):
        self.deleted_by = []

    def __iter__(self):
        return Iterator(self.deleted_by)


class Iterator:
    def __init__(self, deleted_by):
        self._deleted_by, self._left = deleted_by, [1, 2]

    def __iter__(self):
        return self

    def __next__(self):
        if not self._left:
            raise StopIteration
        return self._left.pop(0)

    def __del__(self):
        self._deleted_by.append(threading.current_thread())


def test_training_does_not_wait_while_the_iterator_of_a_pass_is_deleted():
    dataset = Dataset()
    assert list(one_pass(dataset)) == [1, 2]
    sample = one_pass(dataset)
    assert next(sample) == 1
    sample.close()
    assert wait_for(lambda: len(dataset.deleted_by) == 2)
    assert threading.main_thread() not in dataset.deleted_by
