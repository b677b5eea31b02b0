"""Configurations of Keras 2 that are written by hand, for layers whose weights do not matter."""


def entry(class_name, name="one", config=(), **more):
    return {"class_name": class_name, "name": name, "config": {"name": name, **dict(config)}, **more}


def ends(sources):
    """Outputs of layers: names, for the first output of the first call, or (name, call, output)."""
    return [[source, 0, 0] if isinstance(source, str) else [*source] for source in sources]


def connected(layer, *calls):
    """The entry of a layer that is called so many times, each time on some outputs of layers."""
    return {**layer, "inbound_nodes": [[[*source, {}] for source in ends(call)] for call in calls]}


def functional(layers, shapes, outputs, **more):
    """A functional model: layers that are called, the shapes of its inputs by name, and its outputs."""
    inputs = [
        connected(entry("InputLayer", name, {"batch_input_shape": [None, *shape]})) for name, shape in shapes.items()
    ]
    config = {"name": "net", "layers": [*inputs, *layers], "input_layers": ends(shapes), "output_layers": ends(outputs)}
    return {"class_name": "Functional", "config": config, **more}


def model_of(*layers, shapes=((3, 4),), version="2.13.1", **more):
    """A functional model of these layers, one after the other; the first is called on inputs of all shapes."""
    last = inputs = ["data", *(f"data_{number}" for number in range(1, len(shapes)))]
    chain = []
    for layer in layers:
        chain.append(connected(layer, last))
        last = [layer["name"]]
    return functional(chain, dict(zip(inputs, shapes)), last, keras_version=version, **more)


def stacked(layers):
    """Entries of (class, configuration), each by its class and number."""
    return [entry(name, f"{name.lower()}_{number}", config) for number, (name, config) in enumerate(layers)]
