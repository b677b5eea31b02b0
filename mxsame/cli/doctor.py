"""`mxsame doctor`."""

from __future__ import annotations

from mxsame.cli._shared import as_json, click, print_json


@click.command("doctor")
@as_json
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """What is installed, what works, and what fixes the rest.

    Looks at Python, NumPy and MXNet, at NVIDIA's driver and GPUs, and runs a convolution and its gradient on the CPU
    and on each GPU. Counts MXNet's threads and the cores that it could use. Child processes do what may fail. Every
    problem comes with the command that fixes it. Takes a few seconds.

    Exit codes: 0 if all is well, 1 if a problem was found, 2 for wrong options.

    --json prints {"mxsame", "well", "checks"}, each check {"name", "status", "text", "fix", "facts"}; status is ok,
    note or problem. The page of mxsame.doctor in the reference describes the facts.
    """
    from mxsame import doctor

    if as_json:
        found = doctor.as_data(list(doctor.examine()))
        print_json(found)
    else:
        from mxsame.doctor import show

        found = show.run()
    context.exit(0 if found["well"] else 1)
