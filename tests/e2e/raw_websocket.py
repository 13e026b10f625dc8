"""A WebSocket client that says what it is told, right or wrong: frames byte by byte (RFC 6455)."""

import base64
import hashlib
import os
import socket
import struct

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def frame(opcode, payload=b"", *, fin=True, reserved=0, masked=True, length=None):
    """A frame's bytes. `length`: its extended length field instead of the shortest, as bytes."""
    head = bytes([fin << 7 | reserved << 4 | opcode])
    mask = 0x80 if masked else 0
    size = len(payload)
    if length is not None:
        head += bytes([mask | {2: 126, 8: 127}[len(length)]]) + length
    elif size < 126:
        head += bytes([mask | size])
    elif size < 65536:
        head += bytes([mask | 126]) + struct.pack(">H", size)
    else:
        head += bytes([mask | 127]) + struct.pack(">Q", size)
    if not masked:
        return head + payload
    key = os.urandom(4)
    return head + key + bytes(byte ^ key[i % 4] for i, byte in enumerate(payload))


def text(message, **options):
    return frame(TEXT, message.encode() if isinstance(message, str) else message, **options)


def close(code, reason=b""):
    return frame(CLOSE, struct.pack(">H", code) + reason)


def connect(server, ahead_bytes=None):
    """`ahead_bytes`: about as much as the kernel may receive before it is read."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.settimeout(30)
    if ahead_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ahead_bytes)
    connection.connect((host, int(port)))
    return connection


class RawWebSocket:
    def __init__(self, server, ahead_bytes=None):
        self.socket = connect(server, ahead_bytes)
        self.buffer = b""
        key = base64.b64encode(os.urandom(16)).decode()
        self.send(f"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
                  f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                  f"Sec-WebSocket-Key: {key}\r\n\r\n".encode())
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        accept = base64.b64encode(hashlib.sha1((key + GUID).encode()).digest())
        assert head.startswith(b"HTTP/1.1 101") and accept in head, head

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def _more(self):
        got = self.socket.recv(65536)
        if not got:
            raise ConnectionError("the server closed the connection")
        self.buffer += got

    def _take(self, size):
        while len(self.buffer) < size:
            self._more()
        taken, self.buffer = self.buffer[:size], self.buffer[size:]
        return taken

    def receive(self):
        """The next frame: (opcode, payload). Servers never mask and never use reserved bits."""
        first, second = self._take(2)
        assert first & 0x70 == 0 and second & 0x80 == 0
        size = second & 0x7F
        if size == 126:
            size = struct.unpack(">H", self._take(2))[0]
        elif size == 127:
            size = struct.unpack(">Q", self._take(8))[0]
        assert first & 0x80, "this server sends no fragments"
        return first & 0xF, self._take(size)

    def closed_with(self):
        """The code of the close frame that comes, whatever comes before it; answers it."""
        while True:
            opcode, payload = self.receive()
            if opcode == CLOSE:
                self.send(frame(CLOSE, payload))
                assert self.socket.recv(1) == b"", "something came after the close frame"
                return struct.unpack(">H", payload[:2])[0] if payload else None
