"""The scheduler and the servers of MXNet's parameter server, which here also save and load the state of the optimizer.

If servers update the weights, they hold the momentum and all other state of the optimizer, and MXNet gives workers no
way to save it. In the process of a server, `import mxnet` serves at once until the end, and accepts one command: a
pickled optimizer. Here MXNet is first imported as in a worker, and two commands are added, as JSON: save, load.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

SAVE, LOAD = "save", "load"
CONTROLLER = 0  # the number of the one command that MXNet gives to Python


def serve() -> None:
    """Runs this process in the role of DMLC_ROLE, scheduler or server, until all workers have finished."""
    role = os.environ.pop("DMLC_ROLE")
    import mxsame  # noqa: F401  (first: it prepares the import of MXNet)
    from mxnet import kvstore

    os.environ["DMLC_ROLE"] = role

    class Server(kvstore.KVStoreServer):
        """MXNet's, with the commands `save` and `load`."""

        def _controller(self) -> Any:
            def execute(number: int, body: bytes, _: Any) -> None:
                try:
                    command(self.kvstore, body)
                except BaseException as error:  # ctypes would print it and go on
                    print(f"server {self.kvstore.rank}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                    os._exit(1)

            return execute

    Server(kvstore.create("dist")).run()


def command(store: Any, body: bytes) -> None:
    """Executes what a worker has sent: an optimizer, pickled by MXNet, or a command of `send`."""
    if not body.startswith(b"{"):  # as no pickle of an object does
        store.set_optimizer(pickle.loads(body))
        return
    received = json.loads(body)
    path = Path(received["folder"], f"states-of-server-{store.rank}")
    if received["command"] == SAVE:
        path.write_bytes(store._updater.get_states(dump_optimizer=True))
    else:
        store._updater.set_states(path.read_bytes())


def send(store: Any, name: str, folder: os.PathLike) -> None:
    """Makes every server save its state of the optimizer to a folder, or load it; returns when all have."""
    store._send_command_to_servers(CONTROLLER, json.dumps({"command": name, "folder": str(Path(folder).absolute())}))
