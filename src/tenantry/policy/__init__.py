"""Rules as checks of requests: each in CEL for the API server, and in Python for audits and explanations. Pure."""
