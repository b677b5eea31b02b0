"""`mxsame doctor`."""

from __future__ import annotations

from mxsame.cli._shared import as_json, click, print_json


@click.command("doctor")
@as_json
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """What is installed, what works, and what mends the rest.

    Looks at Python, NumPy, MXNet and its companions, at NVIDIA's driver, GPUs and CUDA's libraries, and runs MXNet's
    operators and every plan of mxsame on the CPU and on each GPU, in processes of their own, beside NumPy. Every
    problem comes with the command that mends it. Takes a few seconds.

    Exit codes: 0 if all is well, 1 if a problem was found, 2 for wrong options.

    --json prints {"mxsame", "well", "seconds", "checks"}, each check {"group", "name", "status", "text", "mend",
    "facts"}; status is ok, note, skipped or problem. The page of mxsame.doctor in the reference says what the facts
    are.
    """
    from mxsame import doctor

    if as_json:
        found = doctor.diagnose(lambda check: None)
        print_json(found)
    else:
        from mxsame.doctor import show

        found = show.run()
    context.exit(0 if found["well"] else 1)
