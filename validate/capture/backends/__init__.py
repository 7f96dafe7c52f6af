"""Backends: each runs one engine over a prompt set and writes what it produced."""
