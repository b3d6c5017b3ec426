"""TLS: what a client shows, and whom it believes."""

import os


class TLS:
    """Files for a connection that is encrypted, with names of ZEO's `<ssl>` section.

    `certificate` and `key` are PEM files of the client; without `key` it is in the
    certificate's file. `password_file` has the password of an encrypted key in its first line;
    or `password` is it, or a function that gives it. `authenticate` is a PEM file or a
    directory of them with the certificates of servers, or of the authorities that signed
    them. `server_hostname` is the name that the server's certificate must have, else that of
    the address; a certificate that is listed itself may have any, and with
    `check_hostname=False` every certificate that a listed authority has signed.
    """

    def __init__(
        self,
        certificate=None,
        key=None,
        password_file=None,
        authenticate=None,
        server_hostname=None,
        password=None,
        check_hostname=True,
    ):
        if authenticate is None:
            raise ValueError(
                "authenticate is missing: name the file with the certificates of "
                "servers, or of the authorities that signed them"
            )
        self.certificate = certificate and os.fspath(certificate)
        self.key = key and os.fspath(key)
        self.password_file = password_file and os.fspath(password_file)
        self.authenticate = os.fspath(authenticate)
        self.server_name = server_hostname
        password = password() if callable(password) else password
        self.password = password.encode() if isinstance(password, str) else password
        self.check_hostname = check_hostname


def tls_options(given, server_hostname):
    """The options of a connection, or None when it is not encrypted."""
    if given is None or given is False:
        return None
    if not isinstance(given, TLS):
        raise TypeError(
            f"ssl is {given!r}: give zodium.TLS(certificate=..., key=..., authenticate=...); the "
            "keys inside an SSLContext cannot be taken out of it"
        )
    if server_hostname is None:
        return given
    changed = TLS.__new__(TLS)
    changed.__dict__.update(given.__dict__, server_name=server_hostname)
    return changed
