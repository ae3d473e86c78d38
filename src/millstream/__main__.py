"""Lets ``python -m millstream`` stand in for the ``millstream`` command."""

from millstream.cli.main import main

if __name__ == "__main__":
    main()
