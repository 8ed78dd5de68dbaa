"""The commands: one module each, with `EXAMPLE`, `add_arguments(parser)` and `run(args)`."""
