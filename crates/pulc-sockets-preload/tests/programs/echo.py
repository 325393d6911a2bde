"""An echo server for one client, and a client that checks every byte, asks `pulc sockets`, and has the connection demoted."""

import hashlib, os, random, socket, subprocess, sys, time

PORT = 7007
pulc = os.environ["PULC"]


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
    listener.settimeout(60)
    conn, _ = listener.accept()
    conn.settimeout(60)
    while data := conn.recv(65536):
        conn.sendall(data)
    conn.close()


def tell():
    # A child of vfork and exec, which takes no part itself.
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    print(subprocess.run([pulc, "sockets"], env=plain, capture_output=True, text=True, timeout=60).stdout, flush=True)


def client():
    for _ in range(600):
        try:
            sock = socket.create_connection(("127.0.0.1", PORT), timeout=60)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    rng = random.Random(5)

    def echoes(count):
        for _ in range(count):
            data = rng.randbytes(rng.choice([1, 64, 1000, 30000]))
            sock.sendall(data)
            assert exactly(sock, len(data)) == data, "an echo was wrong"

    echoes(300)
    tell()
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run([pulc, "sockets", "demote", "all"], env=plain, capture_output=True, timeout=60)
    echoes(50)
    tell()
    sock.shutdown(socket.SHUT_WR)
    assert sock.recv(1) == b""
    print("client: all echoes were right", flush=True)


server() if sys.argv[1] == "server" else client()
