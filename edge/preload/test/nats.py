"""nats.py PORT: messages through a nats-server, from one connection to another. Each must come, in order."""
import socket
import sys

MESSAGES = 20000


def connect():
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    f = s.makefile("rb")
    assert f.readline().startswith(b"INFO ")
    say(s, f, b'CONNECT {"verbose":false}\r\n')
    return s, f


def line(s, f):
    """The next line, but for what a server says unasked."""
    while True:
        l = f.readline()
        if l == b"PING\r\n":
            s.sendall(b"PONG\r\n")
        elif not l.startswith(b"INFO "):
            return l


def say(s, f, what):
    s.sendall(what + b"PING\r\n")
    assert line(s, f) == b"PONG\r\n"


reader, lines = connect()
writer, _ = connect()
say(reader, lines, b"SUB subject 1\r\n")
writer.sendall(b"".join(b"PUB subject 8\r\n%08d\r\n" % i for i in range(MESSAGES)))
for i in range(MESSAGES):
    assert line(reader, lines) == b"MSG subject 1 8\r\n"
    assert lines.readline() == b"%08d\r\n" % i
print(MESSAGES, "messages")
