"""Configurations of Keras 2 that are written by hand, for layers whose weights do not matter."""


def entry(class_name, name="one", config=(), **more):
    return {"class_name": class_name, "name": name, "config": {"name": name, **dict(config)}, **more}


def model_of(*layers, shapes=((3, 4),), version="2.13.1", **more):
    """A functional model of these layers, one after the other; the first is called on inputs of all shapes."""
    names = ["data", *(f"data_{number}" for number in range(1, len(shapes)))]
    inputs = [entry("InputLayer", name, {"batch_input_shape": [None, *shape]}) for name, shape in zip(names, shapes)]
    last = [[name, 0, 0, {}] for name in names]
    for each in layers:
        each["inbound_nodes"] = [last]
        last = [[each["name"], 0, 0, {}]]
    for each in inputs:
        each["inbound_nodes"] = []
    ends = {"input_layers": [[name, 0, 0] for name in names], "output_layers": [last[0][:3]]}
    config = {"name": "net", "layers": [*inputs, *layers], **ends}
    return {"class_name": "Functional", "config": config, "keras_version": version, **more}


def stacked(layers):
    """Entries of (class, configuration), each by its class and number."""
    return [entry(name, f"{name.lower()}_{number}", config) for number, (name, config) in enumerate(layers)]
