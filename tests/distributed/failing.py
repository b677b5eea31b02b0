"""A program: train.py with a fault, as FAULT="worker 1 kill 6" has it: when six steps are done, that process is killed.

What happens to a process: `kill`, `stop` (as if its machine hung), `raise`; worker 0 can also be killed in the middle
of writing a checkpoint, `tear`. Where it is not a worker, worker 0 waits from that step on, so no run ends before. A
fault happens once: the file FAULT_FILE says that it did.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

ROLE = os.environ.get("DMLC_ROLE", "worker")
WHO, WHICH, WHAT, STEP = os.environ["FAULT"].split() if "FAULT" in os.environ else ("nobody", "0", "", "0")
REACHED = Path(os.environ.get("FAULT_FILE", os.devnull))
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def hit_when_reached() -> None:
    while not REACHED.exists():
        time.sleep(0.01)
    os.kill(os.getpid(), SIGNALS[WHAT])


def watch_steps() -> None:
    import checkpoints
    import training

    advance, sync = training.Run.advance, checkpoints.sync

    def watched(run: training.Run) -> float:
        concerns_me = run.rank == (int(WHICH) if WHO == "worker" else 0)
        if WHAT != "tear" and run.step == int(STEP) and concerns_me:
            REACHED.touch()
            print(f"fault: {os.environ['FAULT']}", flush=True)
            if WHO != "worker":
                time.sleep(600)
            if WHAT == "raise":
                raise RuntimeError("no more pictures")
            os.kill(os.getpid(), SIGNALS[WHAT])
        return advance(run)

    def torn(path: Path) -> None:
        if path.name == "network.params" and f"{int(STEP):08d}" in str(path):
            REACHED.touch()
            path.write_bytes(path.read_bytes()[:100])
            os.kill(os.getpid(), signal.SIGKILL)
        sync(path)

    training.Run.advance = watched
    if WHAT == "tear":
        checkpoints.sync = torn


if __name__ == "__main__":
    if WHO != "nobody" and not REACHED.exists():
        if ROLE == "worker":
            watch_steps()
        elif ROLE == WHO:
            threading.Thread(target=hit_when_reached, daemon=True).start()
    import train

    train.main(sys.argv[1:])
