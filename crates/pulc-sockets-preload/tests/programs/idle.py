"""Many connections that have said something once and are idle since, beside one that goes on asking.

  idle.py COUNT       prints what a connection costs, and what a request takes beside 10 idle ones and beside COUNT

The server is a child with an epoll set of all. Memory is what both processes and the broker have (shares of anonymous and of shared memory, page tables
too), so what they share is counted once. Pages of files are not: our share of them grows when another program on the machine ends that had mapped
the same library.
"""

import os, resource, select, socket, subprocess, sys, time

PORT = 7008
ASKED = 2000
MESSAGE = b"idle" * 16
pulc = os.environ["PULC"]


def server():
    listener = socket.create_server(("127.0.0.1", PORT), backlog=1000)
    waiting = select.epoll()
    waiting.register(listener, select.EPOLLIN)
    conns = {}
    while True:
        for fd, _ in waiting.poll():
            if fd == listener.fileno():
                conn, _ = listener.accept()
                conns[conn.fileno()] = conn
                waiting.register(conn, select.EPOLLIN)
                continue
            data = conns[fd].recv(4096)
            if not data:
                return
            conns[fd].sendall(data)


def ask(sock, times):
    started = time.perf_counter()
    for _ in range(times):
        sock.sendall(MESSAGE)
        if sock.recv(len(MESSAGE)) != MESSAGE:
            raise EOFError(times)
    return (time.perf_counter() - started) / times * 1e6


def processes():
    """The numbers of all processes of this namespace that have to do with it."""
    return [number for number in os.listdir("/proc") if number.isdigit()]


def memory():
    kilobytes = 0
    for number in processes():
        try:
            with open(f"/proc/{number}/smaps_rollup") as file:
                kilobytes += sum(int(line.split()[1]) for line in file if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
            with open(f"/proc/{number}/status") as file:
                kilobytes += next(int(line.split()[1]) for line in file if line.startswith("VmPTE:"))
        except (OSError, StopIteration):
            # It has ended meanwhile, or is the kernel's.
            pass
    return kilobytes


def ticks():
    total = 0
    for number in processes():
        try:
            with open(f"/proc/{number}/stat") as file:
                words = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += int(words[11]) + int(words[12])
    return total


def promoted():
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    asked = subprocess.run([pulc, "sockets"], env=plain, stdout=subprocess.PIPE, text=True, timeout=150)
    return sum("ring,ring" in line for line in asked.stdout.splitlines())


def main():
    count = int(sys.argv[1])
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    child = os.fork()
    if child == 0:
        server()
        os._exit(0)
    time.sleep(0.3)
    idle = []

    def grow(to):
        while len(idle) < to:
            sock = socket.create_connection(("127.0.0.1", PORT), timeout=100)
            ask(sock, 3)
            idle.append(sock)

    grow(11)
    active = idle.pop()
    ask(active, ASKED)
    few = sorted(ask(active, ASKED) for _ in range(5))[2]
    before, had = memory(), len(idle)
    grow(count)
    taken = memory() - before
    many = sorted(ask(active, ASKED) for _ in range(5))[2]
    print(f"promoted {promoted()} of {count + 1}")
    print(f"{taken / (len(idle) - had):.1f} KiB a connection")
    print(f"a request beside 10: {few:.2f} us, beside {count}: {many:.2f} us")
    before = ticks()
    time.sleep(3)
    print(f"all asleep for 3 s: {ticks() - before} ticks")
    # The server ends with the first that does.
    active.close()
    os.waitpid(child, 0)


main()
