"""`python -m fastfetch` is `kfetch`."""

from fastfetch.cli import main

if __name__ == "__main__":
    main(prog_name="python -m fastfetch")
