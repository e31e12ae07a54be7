"""How a tenant's quota is divided over its tree, and moved there safely: pure.

Subnamespaces, claims, namespaces, ResourceQuotas
│ Tree          what was observed, the sums over it, and what a change concerns
│ Division      what each share should be: see its worked example
│ BatchPlanner  which writes move the ResourceQuotas there, in which order: see its worked example
▼
steps for the writer of the quota controller
"""
