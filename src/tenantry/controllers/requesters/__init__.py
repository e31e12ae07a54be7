"""Lets each requester read the own TenantRequests."""
