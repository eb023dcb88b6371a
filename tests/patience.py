"""How long a test waits for what must come."""

# Seconds; what takes longer hangs. A busy machine is slow, so it is far more than anything needs; what is
# to hang in a test hangs longer.
PATIENCE = 30.0
