"""`%import zodium.zeoclient`: `<zeoclient>` as it stands is opened with this client.

ZODB has that section, so no other type can have its name. What ZODB opens it with is replaced
instead, in this process.
"""

from ZODB import config

from ..zconfig import ClientStorageConfig

config.ZEOClient.open = ClientStorageConfig.open
