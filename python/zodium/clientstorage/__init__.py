"""Open `<clientstorage>` sections with this client: `%import zodium.clientstorage`.

It takes the place of `%import ZEO`. They cannot be imported together, because a section name has
one type in a configuration.
"""
