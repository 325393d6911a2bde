"""An echo server, and clients that check every byte.

  echo.py server      echoes for one client after the other, until it is ended
  echo.py client      waits until a connection is promoted, and until it is back on the kernel after `demote all`
  echo.py plain       echoes only

A connection that is not promoted within some echoes is given up for another one. Waiting has no end here: whoever runs this limits the
whole run.
"""

import os, random, socket, subprocess, sys, time

PORT = 7007
pulc = os.environ["PULC"]
rng = random.Random(5)


def exactly(sock, count):
    parts = []
    while count:
        part = sock.recv(count)
        if not part:
            raise EOFError(count)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def server():
    listener = socket.create_server(("127.0.0.1", PORT))
    while True:
        conn, _ = listener.accept()
        conn.settimeout(150)
        while data := conn.recv(65536):
            conn.sendall(data)
        conn.close()


def ask(*arguments):
    # A child of vfork and exec, which takes no part itself.
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    asked = subprocess.run([pulc, "sockets", *arguments], env=plain, stdout=subprocess.PIPE, text=True, timeout=150)
    return asked.stdout


def connect():
    while True:
        try:
            return socket.create_connection(("127.0.0.1", PORT), timeout=150)
        except ConnectionRefusedError:
            time.sleep(0.02)


def echoes(sock, count):
    for _ in range(count):
        data = rng.randbytes(rng.choice([1, 64, 1000, 30000]))
        sock.sendall(data)
        assert exactly(sock, len(data)) == data, "an echo was wrong"


def mine(sock, text):
    """The lines about this connection."""
    return [line for line in text.splitlines() if f":{sock.getsockname()[1]} " in line]


def is_listed(sock, words):
    """Says what the list has, if it has these words."""
    said = ask()
    if any(words in line for line in mine(sock, said)):
        print(said, flush=True)
        return True
    return False


def finish(sock):
    sock.shutdown(socket.SHUT_WR)
    assert sock.recv(1) == b""
    sock.close()


def promoted():
    while True:
        sock = connect()
        for _ in range(3):
            echoes(sock, 40)
            if is_listed(sock, "ring,ring"):
                return sock
        finish(sock)


def client():
    sock = promoted()
    ask("demote", "all")
    echoes(sock, 40)
    while not is_listed(sock, "kernel,kernel"):
        echoes(sock, 40)
    finish(sock)


what = sys.argv[1]
if what == "server":
    server()
elif what == "client":
    client()
else:
    sock = connect()
    echoes(sock, 100)
    finish(sock)
print("client: all echoes were right", flush=True)
