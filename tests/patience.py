"""The timeout of tests."""

# Seconds, far more than any call needs on a busy machine. Code that is
# meant to hang in a test hangs longer.
PATIENCE = 30.0
