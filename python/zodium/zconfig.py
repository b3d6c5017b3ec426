"""The `<zodium>` section of ZConfig: `%import zodium`, then as `<clientstorage>`."""

from ZODB.config import BaseConfig

from ._tls import TLS

# Keys by the names that they have as parameters; `<zeoclient>` does not have them all.
OPTIONS = (
    "storage",
    "name",
    "cache_size",
    "cache_path",
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
    "ssl",
)
RENAMED = {"cache_path": "cache"}


def tls(section):
    if section.password_function is not None:
        raise ValueError(
            "password-function is not called: write the password in a file, and name it as "
            "password-file"
        )
    if not section.check_hostname:
        raise ValueError(
            "check-hostname cannot be turned off: list the server's own certificate in "
            "authenticate, and it is believed under any name"
        )
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

        addresses = [server.address for server in self.config.server]
        given = {option: getattr(self.config, option, None) for option in OPTIONS}
        options = {RENAMED.get(o, o): value for o, value in given.items() if value is not None}
        return ClientStorage(addresses, **options)
