"""`python -m mxsame ...` is the command `mxsame ...`."""

from mxsame.cli import main

if __name__ == "__main__":
    main(prog_name="mxsame")
