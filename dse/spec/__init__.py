"""What people write, as validated models: study, hardware, workload, objective, space.

`dse.spec.load` reads files; each block's model has a module of its own. Nothing here imports jax.
"""
