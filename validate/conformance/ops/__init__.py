"""One operation a module: its contract, sweep points, judge and shrinker."""
