"""The objects that rules decide on: when the API server evaluates a policy, and which values its checks see. Pure."""
