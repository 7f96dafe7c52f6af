"""Does padding 12 attention heads to 16 change anything at Kimi K3's true shapes? Measured, on one card.

    python -m validate.conformance.head_padding --device cuda --out golden/reports

Needs torch and NumPy alone, and triton where that kernel is to be measured.
"""
