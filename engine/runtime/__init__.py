"""Compiled networks: thread pool, memory plan, native driver, file format."""
