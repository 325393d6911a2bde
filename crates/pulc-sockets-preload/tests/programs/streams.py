"""Streams over TCP in every way that a program may use them; prints checksums and results that do not depend on time.

The same output is expected with the bypass and without. An argument seeds the random sizes."""

import array, ctypes, errno, fcntl, hashlib, os, random, select, selectors, socket, struct, sys, termios, threading, time

seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
rng = random.Random(seed)


def pair(family=socket.AF_INET):
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.socket(family) as listener:
        listener.bind((host, 0))
        listener.listen(1)
        client = socket.socket(family)
        client.connect(listener.getsockname())
        server, _ = listener.accept()
    client.settimeout(60)
    server.settimeout(60)
    return client, server


def warm(a, b, rounds=20):
    """Some messages both ways, as a connection has that is worth promoting."""
    for number in range(rounds):
        for x, y in ((a, b), (b, a)):
            message = b"%06d" % number
            x.sendall(message)
            assert exactly(y, 6) == message


def exactly(sock, count):
    parts = []
    while count:
        part = sock.recv(count)
        if not part:
            raise EOFError(count)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def say(name, *facts):
    print(name, *facts, flush=True)


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def blob(size):
    return rng.randbytes(size)


def test_big(family):
    a, b = pair(family)
    warm(a, b)
    data = blob(3_000_000)
    got = []
    reader = threading.Thread(target=lambda: got.append(exactly(b, len(data))))
    reader.start()
    view = memoryview(data)
    while view:
        piece = rng.choice([1, 7, 100, 4096, 65536, 300000])
        a.sendall(view[:piece])
        view = view[piece:]
    reader.join()
    say("big", family.name, digest(got[0]), got[0] == data)
    a.close()
    say("big end", b.recv(10))
    b.close()


def test_blocking_wait():
    a, b = pair()
    warm(a, b)
    def later():
        for _ in range(20):
            time.sleep(0.003)
            a.sendall(b"late")
    thread = threading.Thread(target=later)
    thread.start()
    say("late", exactly(b, 80) == b"late" * 20)
    thread.join()
    b.settimeout(0.05)
    try:
        b.recv(1)
        say("timeout", "missing")
    except TimeoutError:
        say("timeout", "as it should")
    b.setblocking(False)
    try:
        b.recv(1)
        say("nonblocking", "missing")
    except BlockingIOError:
        say("nonblocking", "as it should")
    b.setblocking(True)
    b.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 30000))
    try:
        b.recv(1)
        say("rcvtimeo", "missing")
    except BlockingIOError:
        say("rcvtimeo", "as it should")


def test_flags():
    a, b = pair()
    warm(a, b)
    a.sendall(b"0123456789")
    wait_readable(b)
    say("peek", b.recv(4, socket.MSG_PEEK), b.recv(4, socket.MSG_PEEK), b.recv(3))
    value = array.array("i", [0])
    fcntl.ioctl(b, termios.FIONREAD, value)
    say("fionread", value[0])
    threading.Timer(0.05, lambda: a.sendall(b"abcdef")).start()
    b.settimeout(None)
    say("waitall", b.recv(13, socket.MSG_WAITALL))
    a.sendall(b"scatter and gather")
    wait_readable(b)
    one, two = bytearray(7), bytearray(20)
    count, control, flags, _ = b.recvmsg_into([one, two])
    say("recvmsg", count, bytes(one), bytes(two), control, flags)
    a.sendmsg([b"x" * 10, b"", b"y" * 5])
    say("sendmsg", exactly(b, 15))
    os.write(a.fileno(), b"written")
    say("write", os.read(b.fileno(), 7))
    os.writev(a.fileno(), [b"ab", b"cd"])
    wait_readable(b)
    room = [bytearray(3), bytearray(3)]
    say("readv", os.readv(b.fileno(), room), room)
    a.close(), b.close()


def wait_readable(sock):
    assert select.select([sock], [], [], 30)[0]


def test_polls():
    a, b = pair()
    warm(a, b)
    poller = select.poll()
    poller.register(b, select.POLLIN)
    say("poll idle", poller.poll(10))
    for number in range(50):
        threading.Timer(0.001 if number % 5 == 0 else 0, lambda: a.sendall(b"z")).start()
        events = poller.poll(30000)
        say_once = [(fd == b.fileno(), event) for fd, event in events]
        assert say_once == [(True, select.POLLIN)], say_once
        assert select.select([b], [], [], 0)[0] == [b]
        assert b.recv(1) == b"z"
        assert select.select([b], [], [], 0)[0] == []
    say("polls done")
    for kind in (select.EPOLLIN, select.EPOLLIN | select.EPOLLET):
        c, d = pair()
        warm(c, d)
        d.setblocking(False)
        with select.epoll() as ep:
            ep.register(d, kind)
            say("epoll idle", ep.poll(0.01))
            got = b""
            sender = threading.Thread(target=lambda: [(time.sleep(0.001 if n % 7 == 0 else 0), c.sendall(b"%05d" % n)) for n in range(200)])
            sender.start()
            while len(got) < 1000:
                events = ep.poll(30)
                assert events, "nothing for 30 s"
                while True:
                    try:
                        got += d.recv(64)
                    except BlockingIOError:
                        break
            sender.join()
            say("epoll", kind, digest(got))
            c.close()
            say("epoll end", ep.poll(30)[0][1] & select.EPOLLIN, d.recv(1))
            d.close()


def test_half_close():
    a, b = pair()
    warm(a, b)
    a.sendall(b"last words")
    a.shutdown(socket.SHUT_WR)
    say("half", exactly(b, 10), b.recv(1), b.recv(1))
    b.sendall(b"answer")
    say("half answer", exactly(a, 6))
    b.close()
    say("half end", a.recv(1))
    try:
        a.sendall(b"x")
        say("pipe", "missing")
    except BrokenPipeError:
        say("pipe", "as it should")
    a.close()


def test_reset():
    a, b = pair()
    warm(a, b)
    a.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    a.close()
    try:
        say("reset", b.recv(1))
    except ConnectionResetError:
        say("reset", "as it should")
    b.close()


def test_dup_and_fork():
    a, b = pair()
    warm(a, b)
    c = a.dup()
    a.close()
    c.sendall(b"by the copy")
    say("dup", exactly(b, 11))
    child = os.fork()
    if child == 0:
        try:
            question = exactly(b, 5)
            b.sendall(b"child heard " + question)
            os._exit(0)
        except BaseException as error:
            print("child", error, flush=True)
            os._exit(1)
    c.sendall(b"hello")
    say("fork", exactly(c, 17), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    c.sendall(b"parent")
    say("fork parent", exactly(b, 6))
    child = os.fork()
    if child == 0:
        c.close()
        b.close()
        os._exit(0)
    os.waitpid(child, 0)
    c.sendall(b"still there")
    say("fork closed", exactly(b, 11))
    c.close()
    say("dup end", b.recv(1))
    b.close()


def test_exec():
    a, b = pair()
    warm(a, b)
    a.sendall(b"line for cat\n")
    a.shutdown(socket.SHUT_WR)
    child = os.fork()
    if child == 0:
        os.dup2(b.fileno(), 0)
        os.dup2(b.fileno(), 1)
        os.execvp("cat", ["cat"])
    b.close()
    say("exec", exactly(a, 13), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), a.recv(1))
    a.close()


def test_variable_arguments():
    """Functions of the C library that write to a connection, or replace the program, by ways of their own."""
    library = ctypes.CDLL(None)
    a, b = pair()
    warm(a, b)
    a.sendall(b"before ")
    written = library.dprintf(a.fileno(), b"%d %s %.2f ", 42, b"words", ctypes.c_double(0.5))
    a.sendall(b"after")
    say("dprintf", written, exactly(b, 7 + written + 5))
    a.sendall(b"line for cat\n")
    a.shutdown(socket.SHUT_WR)
    child = os.fork()
    if child == 0:
        os.dup2(b.fileno(), 0)
        os.dup2(b.fileno(), 1)
        library.execlp(b"cat", b"cat", b"-u", b"-", None)
    b.close()
    say("execlp", exactly(a, 13), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), a.recv(1))
    a.close()


def test_pass():
    a, b = pair()
    warm(a, b)
    left, right = socket.socketpair()
    a.sendall(b"on its way")
    socket.send_fds(left, [b"fd"], [b.fileno()])
    b.close()
    _, fds, _, _ = socket.recv_fds(right, 10, 1)
    passed = socket.socket(fileno=fds[0])
    passed.settimeout(60)
    say("passed", exactly(passed, 10))
    passed.sendall(b"back")
    say("passed back", exactly(a, 4))
    a.close()
    say("passed end", passed.recv(1))
    passed.close()


def test_sendfile():
    a, b = pair()
    warm(a, b)
    data = blob(500_000)
    with open(sys.argv[0] + ".tmp.%d" % os.getpid() if os.access(os.path.dirname(sys.argv[0]), os.W_OK) else "/tmp/pulc-streams.%d" % os.getpid(), "w+b") as file:
        name = file.name
        file.write(data)
        file.flush()
        got = []
        reader = threading.Thread(target=lambda: got.append(exactly(b, len(data) + 20)))
        reader.start()
        a.sendall(b"before....")
        a.sendfile(file, 0)
        a.sendall(b"after.....")
        reader.join()
    os.unlink(name)
    say("sendfile", got[0][:10], got[0][-10:], got[0][10:-10] == data)
    a.close(), b.close()


def test_small_files():
    a, b = pair()
    warm(a, b)
    data = blob(9000)
    name = "/tmp/pulc-streams-small.%d" % os.getpid()
    with open(name, "w+b") as file:
        file.write(data)
        file.flush()
        expected, got = [], []
        # As servers answer: corked, a head, a file of some length from some place, pulled.
        for round in range(200):
            first, count = rng.randrange(9000), rng.choice((1, 100, 1000, 8191, 8192, 8193, 20000))
            if round % 3:
                a.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
            corked = a.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK)
            head = b"%d," % round
            a.sendall(head)
            sent = os.sendfile(a.fileno(), file.fileno(), first, count)
            if corked:
                a.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
            piece = head + data[first : first + sent]
            expected.append((corked, sent == min(count, len(data) - first)))
            got.append(exactly(b, len(piece)) == piece)
        say("small files", expected, all(got), a.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK))
        # What cannot be sent is refused as the kernel refuses it, and nothing is sent.
        for place, count in ((-1, 10), (len(data), 10)):
            try:
                say("refused", os.sendfile(a.fileno(), file.fileno(), place, count))
            except OSError as error:
                say("refused", errno.errorcode[error.errno])
        # The file's own position, which only the kernel moves.
        os.lseek(file.fileno(), 100, os.SEEK_SET)
        say("from where it stands", os.sendfile(a.fileno(), file.fileno(), None, 50), os.lseek(file.fileno(), 0, os.SEEK_CUR))
        say(exactly(b, 50) == data[100:150])
    os.unlink(name)
    a.close(), b.close()


def test_file_objects():
    a, b = pair()
    warm(a, b)
    stream = b.makefile("rwb")
    a.sendall(b"one\ntwo\nthree")
    say("makefile", stream.readline(), stream.readline())
    a.shutdown(socket.SHUT_WR)
    say("makefile rest", stream.read())
    stream.write(b"reply")
    stream.flush()
    say("makefile reply", exactly(a, 5))
    stream.close(), a.close(), b.close()


def test_out_of_band():
    a, b = pair()
    warm(a, b)
    a.sendall(b"normal")
    a.send(b"!", socket.MSG_OOB)
    a.sendall(b"after")
    say("oob", exactly(b, 6), b.recv(1, socket.MSG_OOB), exactly(b, 5))
    a.close(), b.close()


def test_many(count=30):
    """An echo server of one epoll set with many clients in threads."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(count)
    sel = selectors.DefaultSelector()
    sel.register(listener, selectors.EVENT_READ)
    results = [None] * count

    def client(index):
        own = random.Random(seed * 1000 + index)
        sock = socket.create_connection(listener.getsockname(), timeout=60)
        sent, seen = hashlib.sha256(), hashlib.sha256()
        for _ in range(60):
            data = own.randbytes(own.choice([1, 10, 300, 5000, 70000]))
            sender = threading.Thread(target=sock.sendall, args=(data,)) if len(data) > 5000 else None
            sender.start() if sender else sock.sendall(data)
            sent.update(data)
            seen.update(exactly(sock, len(data)))
            if sender:
                sender.join()
        sock.close()
        results[index] = sent.digest() == seen.digest()

    threads = [threading.Thread(target=client, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    done = 0
    pending = {}
    while done < count:
        for key, events in sel.select(60):
            sock = key.fileobj
            if sock is listener:
                conn, _ = listener.accept()
                conn.setblocking(False)
                pending[conn] = b""
                sel.register(conn, selectors.EVENT_READ)
                continue
            try:
                if events & selectors.EVENT_READ:
                    data = sock.recv(30000)
                    if not data:
                        sel.unregister(sock)
                        sock.close()
                        done += 1
                        continue
                    pending[sock] += data
                sent = sock.send(pending[sock]) if pending[sock] else 0
                pending[sock] = pending[sock][sent:]
            except BlockingIOError:
                pass
            sel.modify(sock, selectors.EVENT_READ | (selectors.EVENT_WRITE if pending[sock] else 0))
    for thread in threads:
        thread.join()
    say("many", results == [True] * count)
    listener.close()


for test in (
    lambda: test_big(socket.AF_INET),
    lambda: test_big(socket.AF_INET6),
    test_blocking_wait,
    test_flags,
    test_polls,
    test_half_close,
    test_reset,
    test_dup_and_fork,
    test_exec,
    test_variable_arguments,
    test_pass,
    test_sendfile,
    test_small_files,
    test_file_objects,
    test_out_of_band,
    test_many,
):
    test()
print("all streams were right")
