"""Other ends for the tests: a WSGI server in a thread, and a peer that is given its answer byte by byte."""

import contextlib
import io
import socket
import struct
import threading
from socketserver import ThreadingMixIn
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer


class _Quiet(WSGIRequestHandler):
    def log_message(self, *arguments):
        pass

    def get_stderr(self):
        return io.StringIO()  # where a cut-off answer's traceback goes


class _Threading(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 64


@contextlib.contextmanager
def serving(app):
    """The base URL of a server with this application."""
    assert ServerHandler.http_version == "1.0"  # one request for each connection
    server = _Threading(("127.0.0.1", 0), _Quiet)
    server.set_app(app)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def peer(answer):
    """The base URL of a peer that reads a head and then leaves the connection to `answer(socket, head, stop)`."""
    listener, stop, threads = socket.create_server(("127.0.0.1", 0)), threading.Event(), []

    def one(connection):
        with connection, contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                if not (piece := connection.recv(4096)):
                    break
                head += piece
            answer(connection, head, stop)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threads.append(threading.Thread(target=one, args=(connection,)))
                threads[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stop.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join()
        for thread in threads:
            thread.join()


def reset(connection):
    """Closes with a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def raw(base, text):
    """Sends these bytes, and gives what came until the other side closed."""
    host, port = base.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(text)
        got = b""
        while piece := connection.recv(4096):
            got += piece
        return got
