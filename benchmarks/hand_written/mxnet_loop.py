"""MXNet as its gluon tutorials have it: model zoo networks, hybridised with static memory, gluon.Trainer."""

import mxnet as mx
from mxnet import autograd, gluon

ZOO = {"alexnet": "alexnet", "mobilenet_v2": "mobilenetv2_1.0", "resnet50": "resnet50_v1", "vgg16": "vgg16"}


def make(model: str, images, labels, threads: int):
    network = gluon.model_zoo.vision.get_model(ZOO[model], classes=3)
    network.initialize(mx.init.Xavier())
    network.hybridize(static_alloc=True, static_shape=True)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(network.collect_params(), "sgd", {"learning_rate": 0.001, "momentum": 0.9})
    x, y = mx.nd.array(images), mx.nd.array(labels)

    def step():
        with autograd.record():
            loss = loss_of(network(x), y)
        loss.backward()
        trainer.step(len(labels))
        return loss.mean().asscalar()

    return step, mx.nd.waitall  # the engine still runs the backward pass when the loss is read
