"""A program: a worker of train.py that does all its steps and writes its weights, without checkpoints.

With ONLY=N it does N steps and a checkpoint after them.
"""

from __future__ import annotations

import os


def main() -> None:
    if os.environ.get("DMLC_ROLE", "worker") != "worker":
        import server

        server.serve()
        return
    import train
    import training
    from mxnet import nd

    options = train.parsed(None)
    watchdog = train.Watchdog(options.patience)
    run = training.Run(options, training.joined())
    run.resume()
    last = int(os.environ.get("ONLY", run.steps))
    while run.step < last:
        watchdog.expect("a step")
        run.advance()
    nd.waitall()
    if last < run.steps and run.rank == 0:
        run.save()
    options.out.mkdir(parents=True, exist_ok=True)
    run.net.save_parameters(str(options.out / f"rank-{run.rank}.params"))


if __name__ == "__main__":
    main()
