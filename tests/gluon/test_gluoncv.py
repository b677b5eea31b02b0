"""42 of GluonCV's networks with mxsame's layers in place of Gluon's: what they give, learn, and are as files."""

import in_place
import pytest

import mxsame
from mxsame._mxnet import mx

model_zoo = pytest.importorskip("gluoncv.model_zoo", reason="GluonCV is not installed: python -m nox -s gluon")

SMALL, LARGE, VIDEO = (1, 3, 64, 64), (1, 3, 224, 224), (1, 3, 16, 64, 64)
BASE = {"pretrained_base": False}
CROP = {**BASE, "crop_size": 64}
NETWORKS = {
    **dict.fromkeys(
        ("alexnet", "darknet53", "dla34", "hrnet_w18_small_v1_c", "resnest14", "shufflenet_v1", "shufflenet_v2"), SMALL
    ),
    **dict.fromkeys(("mobilenet0.25", "mobilenetv2_0.25", "mobilenetv3_small", "vgg11_bn", "xception"), SMALL),
    **dict.fromkeys(("resnet18_v1", "resnet18_v1b", "resnet18_v2", "resnet50_v1d_0.11", "resnet50_v1e"), SMALL),
    **dict.fromkeys(("resnext50_32x4d", "se_resnet18_v1", "se_resnet18_v2", "se_resnext50_32x4d"), SMALL),
    **dict.fromkeys(("cifar_resnet20_v1", "cifar_resnet20_v2", "cifar_wideresnet16_10"), (1, 3, 32, 32)),
    **dict.fromkeys(("densenet121", "googlenet", "residualattentionnet56", "squeezenet1.1"), LARGE),
    "inceptionv3": (1, 3, 299, 299),
    **dict.fromkeys(("mobile_pose_mobilenet1.0", "simple_pose_resnet18_v1b", "hrnet_w18_small_v1_s"), SMALL),
    **dict.fromkeys(("center_net_resnet18_v1b_voc", "center_net_mobilenetv3_small_duc_voc"), SMALL),
    **dict.fromkeys(("fcn_resnet50_voc", "deeplab_resnet50_ade", "psp_resnet50_ade"), SMALL),
    **dict.fromkeys(("ssd_300_mobilenet0.25_voc", "yolo3_mobilenet0.25_voc"), (1, 3, 256, 256)),
    **dict.fromkeys(("i3d_inceptionv1_kinetics400", "r2plus1d_resnet18_kinetics400"), VIDEO),
    "c3d_kinetics400": (1, 3, 16, 112, 112),
}
ARGUMENTS = {"deeplab_resnet50_ade": CROP, "psp_resnet50_ade": CROP}
WITHOUT = {
    # operators that are not in mxsame.onnx: gather_nd, averages of uneven parts
    **dict.fromkeys(("center_net_resnet18_v1b_voc", "center_net_mobilenetv3_small_duc_voc"), ("onnx",)),
    "psp_resnet50_ade": ("onnx",),
    # MXNet fails in training with Gluon's layers, too
    **dict.fromkeys(("i3d_inceptionv1_kinetics400", "r2plus1d_resnet18_kinetics400"), ("gradients",)),
    "ssd_300_mobilenet0.25_voc": ("onnx",),  # _contrib_box_decode
    "yolo3_mobilenet0.25_voc": ("gradients",),  # training takes targets
}
# Of millions of inputs of ReLUs some are zero up to rounding. In float32 a graph and imperative calls find other signs,
# with Gluon's layers, too, and gradients differ by a tenth. With a smooth function for ReLU they differ by 6e-5.
IN_FLOAT64 = {"mobilenetv3_small", "residualattentionnet56", "resnet18_v2"}


class Init(mx.init.Xavier):
    """Of networks from Symbols, Gluon has batch norms initialised as weights."""

    def _init_weight(self, name, array):
        if array.ndim == 1:
            array[:] = name.endswith(("gamma", "var"))
        else:
            super()._init_weight(name, array)


def flat(arrays):
    """The arrays of nested outputs."""
    return [array for each in arrays for array in flat(each)] if isinstance(arrays, (list, tuple)) else [arrays]


def difference(got, want):
    """As a part of the largest value of an array, or of a thousandth of the largest of all: some have only rounding."""
    got, want = flat(got), flat(want)
    assert len(got) == len(want)
    largest = [abs(array).max().asscalar() for array in want]
    least = max(largest) / 1000
    return max(abs(a - b).max().asscalar() / max(each, least) for a, b, each in zip(got, want, largest))


def made(name):
    """Without downloads, and without non-maximum suppression, which sorts scores: random ones are nearly equal."""
    arguments = ARGUMENTS.get(name, BASE)
    try:
        net = model_zoo.get_model(name, **arguments)
    except (TypeError, Warning):  # not a network on top of another one
        net = model_zoo.get_model(name)
    if hasattr(net, "set_nms"):
        net.set_nms(nms_thresh=0)
    return net


def pair(name, path):
    """A network with Gluon's layers, the same with mxsame's, and data."""
    theirs = made(name)
    mx.random.seed(0)
    theirs.initialize(Init("gaussian", "in", 2))  # as large after many ReLUs: scores are not all alike
    data = mx.nd.random.normal(shape=NETWORKS[name])
    theirs(data)
    theirs.save_parameters(str(path / "theirs.params"))
    with in_place.in_place():
        ours = made(name)
    ours.load_parameters(str(path / "theirs.params"))
    mxsame.hybridize(ours)
    return theirs, ours, data


def of_file(ours, data, path):
    names = mxsame.export(ours, str(path / "net"))
    return mx.gluon.SymbolBlock.imports(names[0], ["data"], names[1])(data)


STEPS = {
    "graphs": lambda ours, data, path: ours(data),
    "deploy": lambda ours, data, path: mxsame.deploy(ours, data.shape)(data),
    "export": of_file,
}


def gradients(net, data):
    """Those of all parameters, of the sum of the squares of what the network gives in training."""
    mx.random.seed(1)
    with mx.autograd.record():
        loss = sum((out * out).sum() for out in flat(net(data)) if out.dtype == data.dtype)
    loss.backward()
    parameters = net._collect_params_with_prefix().values()
    return [parameter.grad() for parameter in parameters if parameter.grad_req != "null"]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network(name, tmp_path):
    theirs, ours, data = pair(name, tmp_path)
    expected, without = theirs(data), WITHOUT.get(name, ())
    for step in STEPS.keys() - without:
        assert difference(STEPS[step](ours, data, tmp_path), expected) < 2e-5, step
    if "onnx" in without:
        with pytest.raises(ValueError, match="must"):
            mxsame.export_onnx(ours, str(tmp_path / "net.onnx"), data.shape)
    else:
        mxsame.export_onnx(ours, str(tmp_path / "net.onnx"), data.shape)  # which compares
    if name in IN_FLOAT64:
        data = data.astype("float64")
        for net in (ours, theirs):
            net.cast("float64")
    if "gradients" not in without:
        # A shift of one element is a tenth and more.
        assert difference(gradients(ours, data), gradients(theirs, data)) < 2e-3
