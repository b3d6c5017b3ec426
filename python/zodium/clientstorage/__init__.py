"""`%import zodium.clientstorage` in place of `%import ZEO`: `<clientstorage>` as it stands.

The two cannot be imported together: a name has one type in a configuration.
"""
