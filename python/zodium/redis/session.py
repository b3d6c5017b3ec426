"""Sessions of Pyramid on the server, which are written with the transaction of their request.

    config.set_session_factory(
        zodium.redis.session.session_factory(redis.Redis(port=6379), secret="...")
    )

Key decision: a session is one key, a JSON object, and its cookie has nothing but its signed id. It
is written by the transaction of the request: a request that is retried or that fails changes no
session. `session.tie(user)` ends it with the next change of an object, such as a new password.
"""

import json
import logging
import secrets
import time

import transaction as transactions
from pyramid.interfaces import ISession
from webob.cookies import SignedSerializer
from zope.interface import implementer

from ._join import join
from ._ties import Ties, is_own

logger = logging.getLogger("zodium.redis")

ID_BYTES = 24


def session_factory(
    client,
    secret,
    cookie_name="session",
    timeout=1200,
    prefix="session:",
    path="/",
    domain=None,
    secure=False,
    samesite="Lax",
    manager=None,
    storage=None,
):
    """Return a session factory for Pyramid.

    A session ends `timeout` seconds after the last request that has changed or read it. `manager`
    is the transaction manager of the requests, if it is neither that of pyramid_tm nor that of the
    thread. `storage` is the name of the storage of objects that sessions are tied to, if it is not
    the first one of the server.
    """
    signer = SignedSerializer(secret, "zodium.redis.session", serializer=Text())
    options = {"path": path, "domain": domain, "secure": secure, "samesite": samesite}

    def factory(request):
        try:
            identifier = signer.loads(request.cookies.get(cookie_name, "").encode())
        except ValueError:
            identifier = None
        stored = view = None
        if identifier is not None:
            with client.pipeline(transaction=False) as pipe:
                # In this order: what changes after that view ends the session.
                pipe.execute_command("ZTID", *([storage] if storage else []))
                view, stored = pipe.get(prefix + identifier).execute()
        if stored is None:
            # An id whose session is over is never used again.
            identifier = None
        current = manager or getattr(request, "tm", None) or transactions.manager
        session = Session(client, prefix, timeout, current, storage, identifier, stored)
        session.view = view and bytes.fromhex(as_text(view))

        def send_cookie(request, response):
            session.answer_is_due()
            if session.is_new_id:
                value = signer.dumps(session.identifier).decode()
                response.set_cookie(cookie_name, value, httponly=True, overwrite=True, **options)

        request.add_response_callback(send_cookie)
        return session

    return factory


def as_text(answer):
    return answer if isinstance(answer, str) else answer.decode()


class Text:
    """Ids as bytes, to be signed."""

    def dumps(self, text):
        return text.encode()

    def loads(self, data):
        return data.decode()


def noting(name):
    """A method of dict that notes a change."""

    def method(self, *args, **options):
        self.changed()
        return getattr(dict, name)(self, *args, **options)

    method.__name__ = name
    return method


@implementer(ISession)
class Session(dict):
    """The session of a request."""

    def __init__(self, client, prefix, timeout, manager, storage, identifier, stored):
        document = json.loads(stored) if stored else {"created": int(time.time()), "values": {}}
        super().__init__(document["values"])
        self.created = document["created"]
        self.oids = [bytes.fromhex(oid) for oid in document.get("ties", ())]
        self.tied = []  # the objects of further ties
        self.view = None  # of the storage, when the session was read
        self.new = not stored
        self.identifier = identifier or secrets.token_urlsafe(ID_BYTES)
        self.is_new_id = False
        self._client = client
        self._prefix = prefix
        self._timeout = timeout
        self._manager = manager
        self._storage = storage
        self._former = []
        self._transaction = None
        self._stored = stored

    # Changes.

    __setitem__ = noting("__setitem__")
    __delitem__ = noting("__delitem__")
    __ior__ = noting("__ior__")
    clear = noting("clear")
    pop = noting("pop")
    popitem = noting("popitem")
    setdefault = noting("setdefault")
    update = noting("update")

    def changed(self):
        """Have the session written at the end of the transaction."""
        self.is_new_id = self.is_new_id or self.new
        current = self._manager.get()
        if self._transaction is not current:
            self._transaction = current
            current.addBeforeCommitHook(self._write, (current,))

    def invalidate(self):
        """End this session, and begin another one."""
        self._former.append(self.identifier)
        self.identifier = secrets.token_urlsafe(ID_BYTES)
        self.created, self.new = int(time.time()), True
        self.oids, self.tied = [], []
        self.clear()

    def tie(self, *objects):
        """End the session with the next change of one of these persistent objects."""
        self.tied.extend(objects)
        self.changed()

    def _write(self, current):
        commands = join(self._client, current)
        for former in self._former:
            commands.delete(self._prefix + former)
        # A change by this very transaction does not end the session. Changes by others before it
        # would be conflicts, so those objects need no view.
        if any(each._p_jar is None for each in self.tied):
            raise ValueError("a session is tied to objects that are stored already")
        own = dict.fromkeys(each._p_oid for each in self.tied if is_own(each))
        ties = Ties([each for each in self.tied if each._p_oid not in own], self._storage)
        # Former ties to own objects are among those that are made anew.
        ties.oids.update(dict.fromkeys(oid for oid in self.oids if oid not in own))
        ties.view = min(view for view in (self.view, ties.view, b"\xff" * 8) if view)
        document = {"created": self.created, "values": dict(self)}
        document["ties"] = [oid.hex() for oid in (*ties.oids, *own)]
        key, text = self._prefix + self.identifier, json.dumps(document)
        words = ties.words() if ties.oids else []
        commands.execute_command("SET", key, text, "EX", self._timeout, *words)
        if own:
            commands.execute_command("ZTIE", key, *ties.named(own))
        if ties.oids:
            current.addAfterCommitHook(self._check_written, (key, text))

    def _check_written(self, is_committed, key, text):
        """Log that a tied session was not kept: its commands have no answers."""
        if not is_committed:
            return
        # What was there before stays. Another request may have written it since.
        kept = self._client.get(key)
        is_old = kept is None or kept == self._stored and kept not in (text, text.encode())
        if is_old:
            logger.warning(
                "a session was not written: an object that it is tied to has changed since the "
                "request began, or the server cannot tell whether one has"
            )

    def answer_is_due(self):
        """Keep a session that was only read, for another while."""
        if self._transaction is None and not self.new:
            self._client.expire(self._prefix + self.identifier, self._timeout)

    # What ISession asks for besides.

    def flash(self, msg, queue="", allow_duplicate=True):
        waiting = self.setdefault("_f_" + queue, [])
        if allow_duplicate or msg not in waiting:
            waiting.append(msg)

    def pop_flash(self, queue=""):
        # Without messages nothing has changed.
        return self.pop("_f_" + queue) if "_f_" + queue in self else []

    def peek_flash(self, queue=""):
        return self.get("_f_" + queue, [])

    def new_csrf_token(self):
        self["_csrft_"] = token = secrets.token_hex(20)
        return token

    def get_csrf_token(self):
        return self.get("_csrft_") or self.new_csrf_token()
