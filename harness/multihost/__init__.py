"""The suite over several processes, on one machine or on many hosts.

A *rank* is one process of the run, with the index that JAX gives it. Every host has a supervisor that starts its ranks,
asks them for one line after another and buries those that die: `supervise`, which imports no JAX, and `group`. What runs
in a rank is `rank`, with `channel` for what ranks tell each other; `merge` makes one verdict of those of all ranks.

On one machine a single supervisor has all ranks; on a cluster the launcher starts one for each rank. Both do the same
with the same outcomes, so that the supervisors of a cluster stay in step without a network service of their own: ranks
speak through JAX's coordination service, and after a death they tell each other when they meet again.
"""
