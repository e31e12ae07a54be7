"""Explanations: what denies an object, what a quota lacks, why a claim has its nodes."""
