"""HTTP servers of other companies, as far as tasks call them."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self


class Call(NamedTuple):
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Answer:
    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class Provider:
    """A server that is open inside ``with``. ``answers`` is asked for each request; None: the connection breaks."""

    def __init__(self) -> None:
        self.answers: Callable[[Call], Answer | None] = lambda _: Answer({})
        self.requests: list[Call] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(provider) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - the handler has a self of its own
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                call = Call(self.path, self.headers, self.rfile.read(size))
                provider.requests.append(call)
                if (answer := provider.answers(call)) is None:
                    return
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(json.dumps(answer.body).encode())

            do_POST = do_GET  # noqa: N815 - the base class's word

            def log_message(self, *_: object) -> None: ...

        return Handler
