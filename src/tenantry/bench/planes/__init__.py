"""Benchmarks of virtual control planes on a local cluster: a file for each command of `tenantry bench vcp`.

run.py        tenants of one run, control planes in them, their clean-up
processes.py  what the processes take
create.py  wake.py  memory.py  many.py  pods.py  flood.py   one benchmark each
short.py      a short form of all
"""
