"""`mxsame doctor`."""

from __future__ import annotations

from mxsame.cli._shared import as_json, click, print_json

COLORS = {"ok": "green", "note": None, "problem": "red"}


@click.command("doctor", short_help="Check the installation; print commands that fix it.")
@as_json
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """Check what is installed and what works, and print the commands that fix problems.

    This checks Python, NumPy and MXNet, NVIDIA's driver and GPUs, and MXNet's threads and the cores that it could use,
    and runs a convolution and its gradient on the CPU and on each GPU. What may crash runs in a child process. It takes
    a few seconds.

    Exit codes: 0 on success, 1 if a problem was found, 2 for wrong options.
    """
    from mxsame import doctor

    checks = []
    for check in doctor.examine():  # some take seconds: each is printed when it is done
        checks.append(check)
        if not as_json:
            click.secho(f"{check.status:8}", fg=COLORS[check.status], nl=False)
            click.echo(f"{check.name}: {check.text}")
            if check.fix:
                click.echo(f"        fix it with: {click.style(check.fix, bold=True)}")
    data = doctor.as_data(checks)
    if as_json:
        print_json(data)
    else:
        click.echo("\nNo problems found." if data["well"] else "\nFix the first problem, and run this again.")
    context.exit(0 if data["well"] else 1)
