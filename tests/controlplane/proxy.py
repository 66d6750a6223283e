"""A reverse proxy in front of the API server that loses, delays, repeats and cuts, one request at a time, on demand.

    with FaultProxy(plane.endpoint(extender_user)) as proxy:
        kubeconfig = plane.kubeconfig(path, proxy.endpoint)
        lost = proxy.add(drop_answer(), "POST", "/binding$")
        ...
        lost.wait_hit()

It speaks HTTP/1.1 (plain towards the client unless given a certificate, TLS towards the API server) and hands streams
on as they come, so watches work through it; upgraded connections (exec, port-forward) do not. Each client connection
has one connection to the API server. Rules are looked at in the order in which they were added, and the first that
takes a request decides. Control it from any thread.
"""

import asyncio
import ssl
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.controlplane.access import Credentials, Endpoint
from tests.controlplane.faults import Fault, Match, Rule
from tests.controlplane.proxy_session import Seen, Session

_CALL_S = 10.0
_REMEMBERED = 20_000


class FaultProxy:
    """A proxy on a port of its own, running in a thread of its own until the end of its context.

    With the `credentials` of a control plane it serves https with the API server's certificate.
    """

    def __init__(self, upstream: Endpoint, credentials: Credentials | None = None) -> None:
        self._upstream = upstream
        self._credentials = credentials
        self._rules: list[Rule] = []
        self._seen: deque[Seen] = deque(maxlen=_REMEMBERED)
        self._changed = threading.Condition()
        self._sessions: dict[Session, asyncio.Task[None]] = {}
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._port = 0
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait(_CALL_S)
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(_CALL_S)
        self._check()

    @property
    def endpoint(self) -> Endpoint:
        """How to reach the API server through this proxy, as the same user."""
        if self._credentials is None:
            return Endpoint(f"http://127.0.0.1:{self._port}", self._upstream.token, None)
        return Endpoint(f"https://127.0.0.1:{self._port}", self._upstream.token, self._credentials.authority)

    def add(
        self, fault: Fault, method: str = ".*", path: str = "", *, times: int | None = 1, watch: bool | None = None
    ) -> Rule:
        """Let `fault` befall the next `times` requests (None: all from now on) that match, see `Match`."""
        rule = Rule(fault, Match(method, path, watch), times)
        with self._changed:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """End all rules, and let everything go on that they hold."""
        with self._changed:
            rules, self._rules = self._rules, []
        for rule in rules:
            rule.release()

    def cut_watches(self) -> int:
        """Close every open watch now, in the middle of the stream; return how many there were."""
        return self._cut(lambda session: session.is_watching)

    def cut_connections(self) -> int:
        """Close every connection now, whatever is under way on it; return how many there were."""
        return self._cut(lambda _: True)

    def seen(self, method: str = ".*", path: str = "", *, watch: bool | None = None) -> list[Seen]:
        """Return the matching requests whose answer was begun or withheld, oldest first; of the last 20,000."""
        match = Match(method, path, watch)
        with self._changed:
            return [each for each in self._seen if match.covers(each.method, each.path, is_watch=each.is_watch)]

    def wait_seen(self, method: str, path: str, *, count: int = 1, within_s: float = 20.0) -> list[Seen]:
        """Wait until `count` matching requests were seen since the start, and return them. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.seen(method, path)) >= count, within_s):
                message = f"{len(self.seen(method, path))} of {count} requests {method} {path} after {within_s:g} s"
                raise TimeoutError(message)
            return self.seen(method, path)

    def _check(self) -> None:
        if self._failure is not None:
            message = "the proxy ended by itself"
            raise RuntimeError(message) from self._failure

    def _cut(self, chosen: Callable[[Session], bool]) -> int:
        async def cut() -> int:
            sessions = [session for session in self._sessions if chosen(session)]
            for session in sessions:
                session.abort()
                self._sessions[session].cancel()
            return len(sessions)

        return asyncio.run_coroutine_threadsafe(cut(), self._loop).result(_CALL_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as failure:  # noqa: BLE001 - handed to the thread that asks
            self._failure = failure
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._trust = ssl.create_default_context(cafile=str(self._upstream.authority))
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._own_certificate())
        self._port = int(server.sockets[0].getsockname()[1])
        self._started.set()
        async with server:
            await self._end.wait()
            server.close()
            tasks = list(self._sessions.values())
            for session, task in list(self._sessions.items()):
                session.abort()
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _own_certificate(self) -> ssl.SSLContext | None:
        if self._credentials is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._credentials.certificate, self._credentials.key)
        return context

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = Session(reader, writer, self._upstream.url, self._trust, self._rule_for, self._note)
        task = asyncio.current_task()
        assert task is not None
        self._sessions[session] = task
        try:
            await session.run()
        except asyncio.CancelledError:
            return  # cut, or the end of the proxy
        except Exception as failure:
            self._failure = failure
            raise
        finally:
            session.abort()
            self._sessions.pop(session, None)

    def _rule_for(self, method: str, path: str, is_watch: bool) -> Rule | None:
        with self._changed:
            rules = list(self._rules)
        return next((rule for rule in rules if rule.take(method, path, is_watch=is_watch)), None)

    def _note(self, seen: Seen) -> None:
        with self._changed:
            self._seen.append(seen)
            self._changed.notify_all()
