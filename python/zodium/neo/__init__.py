"""Open `<NEOStorage>` sections with the native client: `%import zodium.neo`.

It takes the place of `%import neo.client`, with the same keys. They cannot be imported together,
because a section name has one type in a configuration.
"""
