"""An echo server, and clients that check every byte and wait until `pulc sockets` says what their test expects.

  echo.py server [CLIENTS]          echoes for so many clients, one after the other (1)
  echo.py client                    waits until the connection is promoted, and until it is back on the kernel after `demote all`
  echo.py awake                     as client, but wakes the process BROKER, which is stopped, after some echoes
  echo.py orphan                    waits until the connection is promoted, kills the process BROKER, and goes on
  echo.py until WORDS               waits until the list has these words in the line of its connection
  echo.py forked                    the same for a connection that a fork has too
  echo.py plain                     echoes only

Waiting has no end here: whoever runs this limits the whole run.
"""

import os, random, signal, socket, subprocess, sys, time

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


def server(clients):
    listener = socket.create_server(("127.0.0.1", PORT))
    for _ in range(clients):
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


def until(sock, words):
    """Goes on until the list has these words."""
    while True:
        echoes(sock, 40)
        said = ask()
        if any(words in line for line in mine(sock, said)):
            print(said, flush=True)
            return


def finish(sock):
    sock.shutdown(socket.SHUT_WR)
    assert sock.recv(1) == b""
    print("client: all echoes were right", flush=True)


def client(sock):
    until(sock, "ring,ring")
    ask("demote", "all")
    until(sock, "kernel,kernel")
    finish(sock)


what = sys.argv[1]
if what == "server":
    server(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    sys.exit()
sock = connect()
if what == "client":
    client(sock)
elif what == "awake":
    echoes(sock, 40)
    os.kill(int(os.environ["BROKER"]), signal.SIGCONT)
    client(sock)
elif what == "orphan":
    until(sock, "ring,ring")
    os.kill(int(os.environ["BROKER"]), signal.SIGKILL)
    echoes(sock, 200)
    finish(sock)
elif what == "until":
    until(sock, sys.argv[2])
    finish(sock)
elif what == "forked":
    child = os.fork()
    if child == 0:
        signal.pause()
    until(sock, "shared by a fork")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    finish(sock)
else:
    echoes(sock, 100)
    finish(sock)
