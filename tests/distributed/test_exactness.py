"""Two workers compute what one process computes on the joined batch."""

import cluster
import numpy as np
import pytest
import train
from mxnet import autograd, gluon, lr_scheduler, nd

import networks
import programs

pytestmark = pytest.mark.usefixtures("engine")

BATCH, STEPS, RATE = 8, 3, 0.05
CLOSE = 2e-6  # how far weights may be apart, whose largest is about 1
DIFFERENT = 50 * CLOSE  # what a mistake must at least change


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The path of a data set of three batches, and its images (N, C, H, W) and labels."""
    numbers = np.random.RandomState(5)
    channels, height, width = networks.SHAPE
    images = numbers.standard_normal((BATCH * STEPS, height, width, channels)).astype(np.float32)
    labels = numbers.randint(0, networks.CLASSES, BATCH * STEPS)
    path = tmp_path_factory.mktemp("data") / "data.npz"
    np.savez(path, x_train=images, y_train=labels[:, None], x_test=images[:2], y_test=labels[:2, None])
    return path, images.transpose(0, 3, 1, 2), labels


def trained(data, folder, network, *more):
    """The weights of both workers after all steps."""
    settings = ("--out", folder, "--data", data[0], "--network", network, *more)
    settings += ("--batch-size", BATCH, "--epochs", 1, "--learning-rate", RATE)
    options = train.parsed(list(map(str, settings)))
    assert list(cluster.run(programs.steps, options, workers=2, servers=1, patience=60)) == []
    return [
        {name: value.asnumpy() for name, value in nd.load(str(folder / f"rank-{rank}.params")).items()}
        for rank in range(2)
    ]


def reference(data, network, optimizer, parts=1, scale=1.0, momentum=0.9, learning_rate=RATE, use=None):
    """The weights after the steps in this process, with Gluon's own trainer and nothing hybridized.

    Each of `parts` copies of the network computes the gradients of its part of a batch; all are updated by the sum.
    One part is the joined batch. The other arguments make mistakes.
    """
    _, images, labels = data
    order = np.random.RandomState([0, 0]).permutation(len(labels))
    nets = [network() for _ in range(parts)]
    trainers = []
    for net in nets:
        settings = {"lr_scheduler": lr_scheduler.CosineScheduler(STEPS + 1, base_lr=learning_rate)}
        settings.update({"momentum": momentum} if optimizer == "sgd" else {})
        trainers.append(gluon.Trainer(net.collect_params(), optimizer, settings, kvstore=None))
    for step in range(STEPS):
        batch = order[step * BATCH : (step + 1) * BATCH]
        for net, mine in zip(nets, np.split(batch, parts)):
            with autograd.record():
                probabilities = net(nd.array(images[mine]))
                loss = -nd.log(nd.pick(probabilities, nd.array(labels[mine]))).sum()
            loss.backward()
        for parameters in zip(*(net.collect_params().values() for net in nets)):
            if parameters[0].grad_req != "null":
                total = sum(each.grad() for each in parameters[:use])
                for each in parameters:
                    each.grad()[:] = total
        for trainer in trainers:
            trainer.step(BATCH * scale)
    return [weights_of(net) for net in nets]


def weights_of(net):
    return {name: value.data().asnumpy() for name, value in net._collect_params_with_prefix().items()}


def distance(one, other, only=lambda name: True):
    assert one.keys() == other.keys()
    return max(abs(one[name] - other[name]).max() for name in one if only(name))


# Of "sgd", "workers", test_momentum_is_resumed_where_workers_update shows that its losses are those of "servers".
@pytest.mark.parametrize(("optimizer", "update_on"), [("sgd", "servers"), ("adam", "servers"), ("adam", "workers")])
def test_two_workers_train_as_one_process_on_the_joined_batch(data, tmp_path, optimizer, update_on):
    workers = trained(data, tmp_path, "networks:plain", "--optimizer", optimizer, "--update-on", update_on)
    (expected,) = reference(data, networks.plain, optimizer)
    assert distance(weights_of(networks.plain()), expected) > DIFFERENT, "the steps change something"
    for weights in workers:
        assert distance(weights, expected) < CLOSE
    assert distance(*workers) == 0

    # The comparison notices what usually goes wrong:
    mistakes = {
        "the servers' sum taken for a mean": {"scale": 1 / 2},
        "divided by the workers once more": {"scale": 2},
        "one worker's gradient lost": {"parts": 2, "use": 1},
        "no momentum": {"momentum": 0.0},
        "no schedule": {"learning_rate": 2 * RATE},
    }
    if optimizer == "adam":  # for which the size of gradients hardly matters
        mistakes = {name: how for name, how in mistakes.items() if "lost" in name or "schedule" in name}
    for mistake, how in mistakes.items():
        wrong = reference(data, networks.plain, optimizer, **how)[0]
        assert distance(workers[0], wrong) > DIFFERENT, mistake


def test_batch_norm_is_computed_from_each_workers_part(data, tmp_path):
    """As by a process that runs the parts one by one, not the joined batch; statistics are per worker."""
    workers = trained(data, tmp_path, "networks:normalized")
    expected = reference(data, networks.normalized, "sgd", parts=2)
    for ours, want in zip(workers, expected):
        assert distance(ours, want) < CLOSE
    (joined,) = reference(data, networks.normalized, "sgd")
    assert distance(workers[0], joined) > DIFFERENT

    def is_statistic(name):
        return "running" in name

    assert distance(*workers, lambda name: not is_statistic(name)) == 0
    assert distance(*workers, is_statistic) > DIFFERENT
