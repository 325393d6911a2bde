"""Sets of descriptors (epoll) changed in every way that a program may change them; prints what does not depend on time.

The same output is expected with the bypass and without. An argument seeds what is done. An event of a descriptor that is not in the set,
or one that nobody waits for, is an error at once; one that has to come is waited for."""

import os, random, select, socket, sys, threading, time

seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
rng = random.Random(seed)
IN, OUT, HUP = select.EPOLLIN, select.EPOLLOUT, select.EPOLLHUP
GUARD = 150.0  # seconds; how often something is looked at depends on time, so looks have a chance of their own


def say(name, *facts):
    print(name, *facts, flush=True)


def pair():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        client = socket.socket()
        client.connect(listener.getsockname())
        server, _ = listener.accept()
    for number in range(20):
        for x, y in ((client, server), (server, client)):
            x.sendall(b"%06d" % number)
            left = 6
            while left:
                left -= len(y.recv(left))
    client.setblocking(False)
    server.setblocking(False)
    return client, server


class Model:
    """A set, and what is in it."""

    def __init__(self, count):
        self.lines = [pair() for _ in range(count)]
        self.by_fd = {b.fileno(): index for index, (_, b) in enumerate(self.lines)}
        self.unread = [0] * count
        self.sets = [select.epoll()]
        self.wanted = {}

    def expected(self):
        """What has to come, by descriptor."""
        events = {}
        for fd, mask in self.wanted.items():
            ready = mask & OUT | (mask & IN if self.unread[self.by_fd[fd]] else 0)
            if ready:
                events[fd] = ready
        return events

    def look(self):
        """All events that have to come, and none that must not. A bell that comes late may look like input for a moment."""
        missing, end = self.expected(), time.monotonic() + GUARD
        while True:
            for fd, event in random.choice(self.sets).poll(0 if missing else 0.001):
                assert fd in self.wanted, f"{fd} is not in the set"
                assert event & ~self.wanted[fd] == 0, (fd, event, self.wanted[fd])
                if fd in missing:
                    missing[fd] &= ~event
                    if not missing[fd]:
                        del missing[fd]
            if not missing:
                return
            assert time.monotonic() < end, missing

    def change(self):
        """One change, and how it ended."""
        line = rng.randrange(len(self.lines))
        fd, mask, which = self.lines[line][1].fileno(), rng.choice([IN, OUT, IN | OUT, 0]), rng.choice(self.sets)
        what = rng.choice(["add", "modify", "delete"])
        try:
            if what == "add":
                which.register(fd, mask)
            elif what == "modify":
                which.modify(fd, mask)
            else:
                which.unregister(fd)
        except OSError as error:
            assert (fd in self.wanted) == (what == "add"), (fd, what, error)
            return f"{what} {line} {error.errno}"
        assert (fd in self.wanted) == (what != "add"), (fd, what)
        if what == "delete":
            del self.wanted[fd]
        else:
            self.wanted[fd] = mask
        return f"{what} {line} {mask}"

    def move(self):
        line = rng.randrange(len(self.lines))
        a, b = self.lines[line]
        if self.unread[line]:
            end = time.monotonic() + GUARD
            while self.unread[line]:
                try:
                    self.unread[line] -= len(b.recv(self.unread[line]))
                except BlockingIOError:
                    assert time.monotonic() < end
        else:
            self.unread[line] = rng.choice([1, 64, 5000])
            assert a.send(b"x" * self.unread[line]) == self.unread[line]


def test_random(sets):
    model = Model(6)
    for _ in range(sets - 1):
        model.sets.append(select.epoll.fromfd(os.dup(model.sets[0].fileno())))
    told = []
    for _ in range(1500):
        roll = rng.random()
        if roll < 0.6:
            told.append(model.change())
        elif roll < 0.85:
            model.move()
        else:
            model.look()
        if sets > 1 and rng.random() < 0.01:
            # Another descriptor of it takes the place of one that is closed.
            gone = model.sets.pop(0)
            model.sets.append(select.epoll.fromfd(os.dup(model.sets[0].fileno())))
            gone.close()
    say("random", sets, hash_of(told))


def hash_of(words):
    import hashlib
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:16]


def wait_in_thread(which, found):
    thread = threading.Thread(target=lambda: found.extend(which.poll()))
    thread.start()
    # Asleep in the kernel by now, or not yet: it has to hear of it either way.
    time.sleep(random.choice([0, 0.02]))
    return thread


def test_who_sleeps_hears_of_changes():
    for _ in range(30):
        a, b = pair()
        which = select.epoll()
        which.register(b, IN)
        for mask in (OUT, IN, 0, IN, 0):
            which.modify(b, mask)
        found = []
        thread = wait_in_thread(which, found)
        which.modify(b, OUT)
        thread.join(GUARD)
        assert found == [(b.fileno(), OUT)], found
        found.clear()
        which.unregister(b)
        which.register(b, IN)
        thread = wait_in_thread(which, found)
        a.send(b"late")
        thread.join(GUARD)
        assert found == [(b.fileno(), IN)], found
        a.close(), b.close(), which.close()
    say("who sleeps hears of changes")


def test_a_set_has_several_descriptors():
    """One is waited in, another one changes it: as event loops do that hand their set to other threads."""
    a, b = pair()
    one = select.epoll()
    other = select.epoll.fromfd(os.dup(one.fileno()))
    other.register(b, IN)
    for turn in range(20):
        found = []
        thread = wait_in_thread(one if turn < 10 else other, found)
        a.send(b"z")
        thread.join(GUARD)
        assert found == [(b.fileno(), IN)], found
        assert b.recv(1) == b"z"
        if turn == 4:
            other.modify(b, 0)
            other.modify(b, IN)
        if turn == 14:
            one.close()
    say("several descriptors")


def test_what_is_closed_is_out():
    for how in ("close", "dup2", "close_range"):
        a, b = pair()
        which = select.epoll()
        which.register(b, IN)
        which.modify(b, IN | OUT)
        assert which.poll(0)
        # The connection lives on by a copy: what was taken out must not come back by it.
        copy = os.dup(b.fileno())
        which.unregister(b)
        number = b.detach()
        if how == "close":
            os.close(number)
        elif how == "dup2":
            with open("/dev/null") as null:
                os.dup2(null.fileno(), number)
        else:
            os.closerange(number, number + 1)
        a.send(b"y")
        say("closed", how, which.poll(0.05))
        os.close(copy), a.close(), which.close()
        if how == "dup2":
            os.close(number)


def test_forks_and_others_get_a_set_as_it_is():
    a, b = pair()
    which = select.epoll()
    which.register(b, IN)
    a.send(b"x")
    which.modify(b, 0)
    child = os.fork()
    if child == 0:
        os._exit(len(which.poll(0.02)))
    say("fork", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    nested = select.epoll()
    inner = select.epoll()
    inner.register(a, OUT)
    inner.modify(a, 0)
    nested.register(inner, IN)
    say("nested", nested.poll(0.02))
    inner.modify(a, OUT)
    say("nested", nested.poll(GUARD) == [(inner.fileno(), IN)])
    third = select.epoll()
    c, d = pair()
    third.register(c, OUT)
    third.modify(c, 0)
    poller = select.poll()
    poller.register(third, select.POLLIN)
    say("polled", poller.poll(20))
    third.modify(c, OUT)
    say("polled", poller.poll(GUARD * 1000) == [(third.fileno(), select.POLLIN)])


def test_what_came_before_a_second_set_is_found_there():
    a, b = pair()
    one = select.epoll()
    one.register(b, IN)
    a.send(b"early")
    two = select.epoll()
    two.register(b, IN)
    say("second set", two.poll(GUARD) == [(b.fileno(), IN)], b.recv(9))
    for turn in range(20):
        b.send(b"y"), a.recv(1)
        a.send(b"later")
        say("second set", two.poll(GUARD) == [(b.fileno(), IN)], b.recv(9))


test_random(1)
test_random(3)
test_what_came_before_a_second_set_is_found_there()
test_who_sleeps_hears_of_changes()
test_a_set_has_several_descriptors()
test_what_is_closed_is_out()
test_forks_and_others_get_a_set_as_it_is()
