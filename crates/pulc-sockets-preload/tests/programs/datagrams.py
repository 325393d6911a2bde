"""Sockets for datagrams, used in every way that has a meaning, on one machine: with and without rings the results must be the same.

  datagrams.py SEED

What UDP promises nobody else (one sender's datagrams in their order, none lost while few are on their way) holds on loopback, and is checked.
Waiting has no end here: whoever runs this limits the whole run.
"""

import array, errno, fcntl, os, random, select, socket, sys, termios, time

rng = random.Random(int(sys.argv[1]))
SIZES = [0, 1, 2, 7, 31, 32, 33, 100, 1000, 1472, 5000, 20000]
FAMILIES = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
made = 0


def datagram():
    """No two are alike, but for empty ones."""
    global made
    made += 1
    size = rng.choice(SIZES)
    return (made.to_bytes(4, "little") + rng.randbytes(size))[: size if size < 4 else None]


def bound(family, host):
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.bind((host, 0))
    return sock


def is_readable(sock, how):
    if how == 0:
        return bool(select.select([sock], [], [], 0)[0])
    if how == 1:
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))
    with select.epoll() as epoll:
        epoll.register(sock, select.EPOLLIN)
        return bool(epoll.poll(0))


def take(sock, expected, source):
    """Takes a datagram in one of many ways."""
    size, how = len(expected), rng.randrange(9)
    # Python asks nobody for nothing.
    room = max(1, rng.choice([size, size + 1, 65535]))
    if how == 0:
        data, address = sock.recvfrom(room)
        assert address[:2] == source[:2], (address, source)
    elif how == 1:
        data = sock.recv(room)
    elif how == 2:
        assert sock.recv(room, socket.MSG_PEEK) == expected
        data, address = sock.recvfrom(room)
        assert address[:2] == source[:2]
    elif how == 3:
        cut = rng.randrange(size + 1)
        data, extra, flags, address = sock.recvmsg(cut)
        assert data == expected[:cut] and bool(flags & socket.MSG_TRUNC) == (cut < size) and not extra, (cut, size, flags)
        assert address[:2] == source[:2]
        return
    elif how == 4:
        parts = [bytearray(rng.choice([0, 1, 3, 50])) for _ in range(rng.randrange(1, 40))] + [bytearray(65535)]
        got, _, flags, address = sock.recvmsg_into(parts)
        assert got == size and not flags & socket.MSG_TRUNC and address[:2] == source[:2]
        data = b"".join(parts)[:got]
    elif how == 5:
        cut = bytearray(rng.randrange(size + 1))
        if not cut:
            cut = bytearray(1)
        got = sock.recv_into(cut, 0, socket.MSG_TRUNC)
        assert got == size and cut[:size] == expected[: len(cut)], (got, size)
        return
    elif how == 6:
        waiting = array.array("i", [0])
        fcntl.ioctl(sock, termios.FIONREAD, waiting)
        assert waiting[0] == size, (waiting, size)
        data = sock.recv(room)
    elif how == 7 and size > 0:
        data = os.read(sock.fileno(), room)
    else:
        copy = sock.dup()
        data = copy.recv(room)
        copy.close()
    assert data == expected, (how, len(data), size)


def send(sock, data, to):
    how = rng.randrange(5)
    if to is not None:
        if how < 3:
            sent = sock.sendto(data, to)
        else:
            cut = rng.randrange(len(data) + 1)
            sent = sock.sendmsg([data[:cut], data[cut:]], [], 0, to)
    elif how == 0 and data:
        sent = os.write(sock.fileno(), data)
    elif how == 1:
        sent = sock.sendmsg([data])
    else:
        sent = sock.send(data)
    assert sent == len(data)


def random_pairs(family, host):
    """One receiver, some senders: each sender's datagrams come in their order."""
    is_mixed = family == socket.AF_INET6 and rng.randrange(2)
    receiver = bound(family, "::" if is_mixed else host)
    port = receiver.getsockname()[1]
    senders = []
    for index in range(rng.randrange(1, 4)):
        sender = socket.socket(socket.AF_INET if is_mixed and index % 2 else family, socket.SOCK_DGRAM)
        there = ("127.0.0.1" if sender.family == socket.AF_INET else host, port)
        sender.bind((there[0], 0))
        is_connected = rng.randrange(2)
        if is_connected:
            sender.connect(there)
        name = sender.getsockname()
        seen = ("::ffff:127.0.0.1", name[1]) if is_mixed and sender.family == socket.AF_INET else name
        senders.append((sender, None if is_connected else there, seen))
    sent = [[] for _ in senders]
    waiting = 0
    receiver.settimeout(20)
    for _ in range(150):
        if waiting < 40000 and rng.randrange(2):
            which = rng.randrange(len(senders))
            sender, to, _ = senders[which]
            data = datagram()
            send(sender, data, to)
            sent[which].append(data)
            waiting += len(data) + 800
        elif waiting:
            assert is_readable(receiver, rng.randrange(3))
            ahead = receiver.recvmsg(65535, 0, socket.MSG_PEEK)
            which = next(at for at, one in enumerate(senders) if one[2][:2] == ahead[3][:2])
            expected = sent[which].pop(0)
            assert ahead[0] == expected, "out of order"
            take(receiver, expected, senders[which][2])
            waiting -= len(expected) + 800
        else:
            assert not is_readable(receiver, rng.randrange(3))
            receiver.setblocking(False)
            try:
                receiver.recv(10)
                raise AssertionError("something came from nowhere")
            except BlockingIOError:
                pass
            receiver.settimeout(20)
    for sender, _, _ in senders:
        sender.close()
    receiver.close()


def limits(family, host):
    """A wait that ends without a datagram, many times, and one that does not."""
    receiver, sender = bound(family, host), bound(family, host)
    sender.connect(receiver.getsockname())
    for turn in range(20):
        sender.send(b"x")
        assert receiver.recv(10) == b"x"
        receiver.settimeout(0.003)
        try:
            receiver.recv(10)
            raise AssertionError("nothing was sent")
        except TimeoutError:
            pass
        receiver.settimeout(20)
    assert not select.select([receiver], [], [], 0.01)[0]
    receiver.close()
    sender.close()


def refused(family, host):
    """A connected socket is told when nobody is there any more."""
    receiver, sender = bound(family, host), bound(family, host)
    sender.connect(receiver.getsockname())
    for _ in range(20):
        sender.send(b"x")
        assert receiver.recv(10) == b"x"
    receiver.close()
    said = []
    for _ in range(3):
        try:
            sender.send(b"y")
            said.append(0)
        except OSError as error:
            said.append(error.errno)
    sender.close()
    return [errno.errorcode.get(number, "sent") for number in said]


def reconnected(family, host):
    """Who connects a socket hears that one only from then on."""
    receiver, one, other = (bound(family, host) for _ in range(3))
    for sender in (one, other):
        for _ in range(12):
            sender.sendto(b"before", receiver.getsockname())
            assert receiver.recv(10) == b"before"
    receiver.connect(one.getsockname())
    other.sendto(b"strange", receiver.getsockname())
    one.sendto(b"known", receiver.getsockname())
    receiver.settimeout(20)
    assert receiver.recv(10) == b"known"
    assert not is_readable(receiver, 0)
    for sock in (receiver, one, other):
        sock.close()


def overflow(family, host):
    """More than there is room for: what comes is whole, and in order."""
    receiver, sender = bound(family, host), bound(family, host)
    sender.connect(receiver.getsockname())
    for _ in range(10):
        sender.send(b"z" * 8)
        receiver.recv(8)
    last, came, number = -1, 0, 0
    for _ in range(3):
        for _ in range(3000):
            sender.send(number.to_bytes(8, "little") * 20)
            number += 1
        while is_readable(receiver, rng.randrange(3)):
            data = receiver.recv(1000)
            now = int.from_bytes(data[:8], "little")
            assert data == data[:8] * 20 and now > last, (last, now)
            last, came = now, came + 1
    assert came > 100, came
    receiver.close()
    sender.close()


def shared_by_fork(family, host):
    """Parent and child have the same sockets."""
    receiver, sender = bound(family, host), bound(family, host)
    sender.connect(receiver.getsockname())
    for _ in range(12):
        sender.send(b"x")
        assert receiver.recv(10) == b"x"
    done, go = os.pipe()
    child = os.fork()
    if child == 0:
        good = all(receiver.recv(100) == b"to the child %d" % turn for turn in range(50))
        sender.send(b"from the child")
        os.write(go, b"k" if good else b"n")
        os._exit(0)
    for turn in range(50):
        sender.send(b"to the child %d" % turn)
    assert os.read(done, 1) == b"k"
    os.waitpid(child, 0)
    assert receiver.recv(100) == b"from the child"
    for fd in (done, go):
        os.close(fd)
    receiver.close()
    sender.close()


def serve(sock, how):
    """Echoes until told to end."""
    if how == "epoll" or how == "edge":
        epoll = select.epoll()
        epoll.register(sock, select.EPOLLIN | (select.EPOLLET if how == "edge" else 0))
        sock.setblocking(False)
    if how == "poll":
        poll = select.poll()
        poll.register(sock, select.POLLIN)
    while True:
        if how in ("epoll", "edge"):
            epoll.poll()
        elif how == "poll":
            poll.poll()
        elif how == "select":
            select.select([sock], [], [])
        while True:
            try:
                data, who = sock.recvfrom(65535)
            except BlockingIOError:
                break
            if data == b"end":
                return
            sock.sendto(data, who)
            if how in ("poll", "select", "epoll", "blocking"):
                break


def echoes(family, host, how):
    """A server in another process, and clients of it."""
    server = bound(family, host)
    child = os.fork()
    if child == 0:
        # A socket of its own: one that a fork shares stays on the kernel.
        name = server.getsockname()
        server.close()
        while True:
            try:
                own = socket.socket(family, socket.SOCK_DGRAM)
                own.bind(name)
                break
            except OSError:
                time.sleep(0.01)
        serve(own, how)
        os._exit(0)
    name = server.getsockname()
    server.close()
    clients = [bound(family, host) for _ in range(3)]
    clients[0].connect(name)
    for client in clients:
        client.settimeout(0.2)
    for turn in range(300):
        which = rng.randrange(3)
        client, data = clients[which], datagram()
        while True:
            try:
                send(client, data, None if which == 0 else name)
                got = client.recv(65535)
                # An earlier echo that came late.
                while got != data:
                    got = client.recv(65535)
                break
            except (TimeoutError, ConnectionRefusedError):
                # It is not there yet.
                assert turn == 0 or turn > 0 and wait_a_little()
    clients[0].send(b"end")
    os.waitpid(child, 0)
    for client in clients:
        client.close()


slow = 0


def wait_a_little():
    global slow
    slow += 1
    return slow < 20


for family, host in FAMILIES:
    try:
        bound(family, host).close()
    except OSError:
        continue
    for _ in range(6):
        random_pairs(family, host)
    limits(family, host)
    print(refused(family, host))
    reconnected(family, host)
    overflow(family, host)
    shared_by_fork(family, host)
    for how in ("blocking", "poll", "select", "epoll", "edge"):
        echoes(family, host, how)
print("all datagrams were right")
