"""The metrics of tenants: read from the caches of the leader at each scrape.

    caches ─► gather.Figures of each tenant ─► figures.bounded: the largest, and the sum of the rest ─► series

Nothing is counted between scrapes, so that a tenant that is gone leaves no series, and a scrape writes nothing.
"""
