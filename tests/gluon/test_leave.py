"""The model zoos of Gluon and GluonCV as Keras models: read back, they give what the networks give, or are refused."""

import pytest
import test_gluoncv

import mxsame
from mxsame._mxnet import mx

vision = mx.gluon.model_zoo.vision
DEPTHS = (18, 34, 50, 101, 152)
GLUON = [
    *(f"resnet{depth}_v{version}" for depth in DEPTHS for version in (1, 2)),
    *(f"vgg{depth}{norm}" for depth in (11, 13, 16, 19) for norm in ("", "_bn")),
    *(f"densenet{depth}" for depth in (121, 161, 169, 201)),
    *(f"mobilenet{version}{width}" for version in ("", "v2_") for width in ("1.0", "0.75", "0.5", "0.25")),
    *("alexnet", "squeezenet1.0", "squeezenet1.1", "inceptionv3"),
]
NETWORKS = {**{f"gluon {name}": (name, (1, 3, 224, 224)) for name in GLUON}}
NETWORKS["gluon inceptionv3"] = ("inceptionv3", (1, 3, 299, 299))
NETWORKS.update({name: (name, shape) for name, shape in test_gluoncv.NETWORKS.items()})
REFUSED = {
    **dict.fromkeys(("center_net_resnet18_v1b_voc", "center_net_mobilenetv3_small_duc_voc"), "operator shape_array"),
    "psp_resnet50_ade": "output_size must divide",
    **dict.fromkeys(("ssd_300_mobilenet0.25_voc", "yolo3_mobilenet0.25_voc"), "exactly: |has no conversion for"),
}


@pytest.mark.parametrize("case", NETWORKS)
def test_a_network_as_a_keras_model(case, tmp_path):
    name, shape = NETWORKS[case]
    net = vision.get_model(name) if case.startswith("gluon ") else test_gluoncv.made(name)
    mx.random.seed(0)
    net.initialize(test_gluoncv.Init("gaussian", "in", 2))
    net(mx.nd.random.normal(shape=shape))
    if case in REFUSED:
        with pytest.raises(ValueError, match=REFUSED[case]):
            mxsame.to_keras(net, tmp_path / "net.keras", shape)
    else:
        assert mxsame.to_keras(net, tmp_path / "net.keras", shape).compared_by
