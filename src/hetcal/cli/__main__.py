"""`python -m hetcal.cli` is the `hetcal` command."""

from hetcal.cli.app import main

if __name__ == "__main__":
    main()
