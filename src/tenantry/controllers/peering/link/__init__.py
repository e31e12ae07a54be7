"""The host half: a cluster that runs pods of this one."""
