"""ZODB's and ZEO's own storage tests, run against an external server."""
