"""Long buffers, threads, subprocesses and forked workers, as numerical programs in Python have them. Knows nothing of PULC."""
import array
import multiprocessing
import os
import subprocess
import sys
import threading

buffers = [bytearray(20_000 + 7_919 * i) for i in range(60)]
for number, buffer in enumerate(buffers):
    buffer[0] = buffer[-1] = number


def right(which=buffers):
    return all(buffer[0] == number and buffer[-1] == number for number, buffer in enumerate(which))


def grow(rounds=50):
    for number in range(rounds):
        values = array.array("d", [number]) * 30_000
        values.extend(values)
        assert sum(values) == number * 60_000


def in_worker(number):
    assert right()
    buffers[number][1] = 255
    grow(3)
    return number


grow()
threads = [threading.Thread(target=grow) for _ in range(4)]
for thread in threads:
    thread.start()
child = os.fork()
if child == 0:
    good = right()
    buffers[0][0] = 9
    del buffers[10:]
    os._exit(0 if good else 1)
assert os.waitpid(child, 0)[1] == 0
for thread in threads:
    thread.join()
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(in_worker, range(8)) == list(range(8))
assert right() and all(buffer[1] == 0 for buffer in buffers[:8])
said = subprocess.run([sys.executable, "-c", "print(sum(bytearray(3_000_000)))"], capture_output=True, check=True)
assert said.stdout == b"0\n"
print("all bytes were right")
