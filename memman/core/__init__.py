"""The inside of both managers: wiring, methods, validation of arguments, and what settings name."""
