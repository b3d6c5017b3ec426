"""TLS options: the client's certificate, and the certificates that it trusts."""

import os


class TLS:
    """TLS files, with the names of ZEO's `<ssl>` section.

    `certificate` and `key` are PEM files of the client; the key may be in the certificate's
    file. `password_file` has the password of an encrypted key in its first line;
    alternatively `password` is the password, or a function that returns it. `authenticate` is
    a PEM file or a directory of PEM files, with the certificates of servers or of the
    authorities that signed them. `server_hostname` is the name that the server's certificate
    must have, by default that of the address. The name is not checked for a certificate that
    is listed itself, nor with `check_hostname=False`.
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
    """Return the TLS options of a connection, or None if it is not encrypted."""
    if given is None or given is False:
        return None
    if not isinstance(given, TLS):
        raise TypeError(
            f"ssl is {given!r}: give zodium.TLS(certificate=..., key=..., authenticate=...); "
            "keys cannot be extracted from an SSLContext"
        )
    if server_hostname is None:
        return given
    changed = TLS.__new__(TLS)
    changed.__dict__.update(given.__dict__, server_name=server_hostname)
    return changed
