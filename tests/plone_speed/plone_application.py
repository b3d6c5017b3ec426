"""Zope with Plone in this process, over the storage of a ZConfig section."""

import io
import pathlib
import sys
import time

CONFIGURATION = """
%define INSTANCE {folder}
{imports}
instancehome $INSTANCE
clienthome $INSTANCE
<zodb_db main>
    mount-point /
    cache-size 30000
    {storage}
</zodb_db>
"""

SITE_ZCML = """<configure xmlns="http://namespaces.zope.org/zope"
    xmlns:meta="http://namespaces.zope.org/meta" xmlns:five="http://namespaces.zope.org/five">
  <include package="Products.Five"/>
  <meta:redefinePermission from="zope2.Public" to="zope.Public"/>
  <five:loadProducts file="meta.zcml"/>
  <five:loadProducts/>
  <five:loadProductsOverrides/>
  <securityPolicy component="AccessControl.security.SecurityPolicy"/>
</configure>
"""


def configured(folder, storage, imports=""):
    """Read the configuration, import Plone, and open the database."""
    from Zope2.Startup.run import configure_wsgi

    folder = pathlib.Path(folder).resolve()
    (folder / "etc").mkdir(exist_ok=True)
    (folder / "var").mkdir(exist_ok=True)
    (folder / "etc" / "site.zcml").write_text(SITE_ZCML)
    path = folder / "etc" / "zope.conf"
    path.write_text(CONFIGURATION.format(folder=folder, imports=imports, storage=storage))
    configure_wsgi(str(path))
    import Zope2

    Zope2.startup_wsgi()


def request(path, accept="text/html"):
    """Request a page as a web server does; return seconds and the length of the body."""
    from ZPublisher.WSGIPublisher import publish_module

    path, _, query = path.partition("?")
    answer = []
    environ = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": path,
        "SCRIPT_NAME": "",
        "QUERY_STRING": query,
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "8080",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_ACCEPT": accept,
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    began = time.perf_counter()
    body = publish_module(environ, lambda status, headers, info=None: answer.append(status))
    length = sum(map(len, body))
    seconds = time.perf_counter() - began
    if not answer or not answer[0].startswith("200"):
        raise RuntimeError(f"{path} was answered with {answer}")
    return seconds, length
