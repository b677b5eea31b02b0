"""Fine-tunes a Keras model in MXNet: a new head, the rest frozen, then all of it; and writes it back as a Keras model.

    python examples/fine_tune.py    # prints the accuracy before and after, and writes fine_tuned.h5

Needs mxsame with the extra `keras`. Takes a few seconds. The data are made up: is the upper or the lower half brighter?
"""

import mxsame  # noqa: I001 - before MXNet
import numpy as np
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

random = np.random.RandomState(0)
images, labels = random.uniform(size=(256, 8, 8, 1)).astype("float32"), random.randint(2, size=256)
images[labels == 0, :4] += 0.2
images[labels == 1, 4:] += 0.2
images, labels = nd.array(images), nd.array(labels)
loss_fn = gluon.loss.SoftmaxCELoss()


def accuracy():
    return (net(images).argmax(axis=1) == labels).mean().asscalar()


def train(steps, learning_rate):
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": learning_rate})
    for _ in range(steps):
        with autograd.record():
            loss = loss_fn(net(images), labels).mean()
        loss.backward()
        trainer.step(1)


net = mxsame.from_keras(mxsame.sample("digits"))  # it knows ten digits
net["dense"] = nn.Dense(2, prefix="halves_")
for layer in net:
    layer.trainable = layer.name == "dense"
net.summary()
mxsame.hybridize(net)
before = accuracy()
train(100, 0.01)
for layer in net:
    layer.trainable = True
train(50, 0.001)
print(f"accuracy: {before:.2f} before, {accuracy():.2f} after")
print(mxsame.to_keras(net, "fine_tuned.h5"))
