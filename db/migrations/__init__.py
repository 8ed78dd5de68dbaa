"""Alembic revisions, run by `db.migrate`: one file for each schema version, numbered from 0001."""
