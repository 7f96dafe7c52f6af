"""Implementations that can be judged: ours, and adapters of foreign packages."""
