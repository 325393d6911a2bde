/* What a call costs where the bypass leaves a descriptor alone: nanoseconds of calls that find nothing (EAGAIN), on a pipe, on a unix socket, and
 * on a TCP connection whose port is not among those of --only; the least of 20 turns of 50,000. To be run with and without the bypass:
 *   cc -O2 -o calls calls.c; ./calls; pulc bypass --only 1-9 ./calls
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TURNS 20
#define CALLS 50000

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static char byte[64];

static void by_read(int fd) { (void)!read(fd, byte, sizeof byte); }
static void by_recv(int fd) { recv(fd, byte, sizeof byte, MSG_DONTWAIT); }
static void by_poll(int fd) {
    struct pollfd one = {fd, POLLIN, 0};
    poll(&one, 1, 0);
}

static double least(void (*call)(int), int fd) {
    double least = 1e9;
    for (int turn = 0; turn < TURNS; turn++) {
        double before = now();
        for (int i = 0; i < CALLS; i++)
            call(fd);
        double took = (now() - before) / CALLS;
        least = took < least ? took : least;
    }
    return least;
}

static void need(int is_well, const char *what) {
    if (!is_well) {
        perror(what);
        exit(1);
    }
}

int main(void) {
    int pipes[2], unix_pair[2];
    need(pipe2(pipes, O_NONBLOCK) == 0, "pipe");
    need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, unix_pair) == 0, "socketpair");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t wide = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), tcp = socket(AF_INET, SOCK_STREAM, 0);
    need(bind(listener, (struct sockaddr *)&address, wide) == 0 && listen(listener, 1) == 0, "listen");
    need(getsockname(listener, (struct sockaddr *)&address, &wide) == 0, "getsockname");
    need(connect(tcp, (struct sockaddr *)&address, wide) == 0, "connect");
    int other = accept(listener, NULL, NULL);
    need(other >= 0 && fcntl(tcp, F_SETFL, O_NONBLOCK) == 0, "accept");
    for (int i = 0; i < 20; i++) {
        need(send(tcp, byte, 1, 0) == 1 && recv(other, byte, 1, 0) == 1, "talk");
        need(send(other, byte, 1, 0) == 1, "talk");
        while (recv(tcp, byte, 1, 0) != 1) {
        }
    }
    printf("pipe read %.1f, unix recv %.1f, tcp read %.1f, tcp recv %.1f, tcp poll %.1f\n", least(by_read, pipes[0]),
           least(by_recv, unix_pair[0]), least(by_read, tcp), least(by_recv, tcp), least(by_poll, tcp));
    return 0;
}
