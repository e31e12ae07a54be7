"""DedicatedClusters: a control plane, claims of nodes and the handover of these nodes, from one object (H04)."""
