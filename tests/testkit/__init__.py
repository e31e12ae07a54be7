"""For tests only: a manual clock, builders of worlds, and a proxy that injects faults."""
