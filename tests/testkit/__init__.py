"""For tests only: a clock that is turned by hand, builders of worlds, and a proxy that fails on purpose."""
