"""Level 4: what a native input pipeline draws, crops and flips."""
