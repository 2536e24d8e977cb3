"""Studies of methods: on the data sets of a protocol, or on a single table.

A study is a protocol (`protocol`), run cell by cell (`run`, `cells`), whose results (`results`) become tables and
figures (`table`, `figures`):

    hetcal bench run benchmarks/paper/protocol.toml --out results
    hetcal bench table results
    hetcal bench figures results

A comparison cross-validates methods on one table (`compare`) and recommends one (`recommendation`). Both measure in the
same way (`cells.measure`), and average over splits or folds in the same way (`statistics`).
"""
