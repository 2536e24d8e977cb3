"""Studies: a protocol (TOML) becomes cells, cells become results, results become the paper's table and figures.

hetcal bench run benchmarks/paper/protocol.toml --out results
hetcal bench table results
hetcal bench figures results
"""
