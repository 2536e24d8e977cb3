"""One file per command: from files to files, with a plain dict of what happened. `hetcal.cli` reads the arguments, and
`hetcal.commands.show` says the dict in words."""
