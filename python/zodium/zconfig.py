"""The `<zodium>` section of ZConfig: `%import zodium`, then as `<clientstorage>`."""

from ZODB.config import BaseConfig

from ._tls import TLS

OPTIONS = (
    "storage",
    "name",
    "cache_size",
    "client",
    "var",
    "blob_dir",
    "shared_blob_dir",
    "blob_cache_size",
    "blob_cache_size_check",
    "read_only",
    "read_only_fallback",
    "server_sync",
    "wait",
    "wait_timeout",
    "client_label",
)


def tls(section):
    return TLS(
        certificate=section.certificate,
        key=section.key,
        password_file=section.password_file,
        authenticate=section.authenticate,
        server_hostname=section.server_hostname,
    )


class ClientStorageConfig(BaseConfig):
    """Opens the storage that a section describes."""

    def open(self):
        from ._storage import ClientStorage

        config = self.config
        options = {option: getattr(config, option) for option in OPTIONS}
        addresses = [server.address for server in config.server]
        return ClientStorage(addresses, cache=config.cache_path, ssl=config.ssl, **options)
