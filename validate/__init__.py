"""Does the optimized serving path still compute the same model as the reference?"""

__version__ = "0.1.0"
