"""How Tenantry acts: cache, queue, plan, apply, status.

    watch ─► Informer ─► WorkQueue ─► Controller.reconcile ─► plan ─► Applier ─► API server
                                        (gather, desired)                 └─► status

Level-triggered: a reconcile looks at the state, never at the event that woke it, and a second one writes nothing.
"""
