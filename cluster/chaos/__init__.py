"""Load and faults against a server of its own, with every request accounted for.

`python -m cluster.chaos` (or `make chaos`) is the command; see `cluster.chaos.__main__`.
"""
