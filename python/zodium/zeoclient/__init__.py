"""Open `<zeoclient>` sections with this client: `%import zodium.zeoclient`.

ZODB defines that section, so no other type can have its name. Instead, ZODB's function that opens
it is replaced in this process.
"""

from ZODB import config

from ..zconfig import ClientStorageConfig

config.ZEOClient.open = ClientStorageConfig.open
