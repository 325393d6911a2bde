/* One wait for messages and for descriptors, both ways: pulc_select_items with a pipe among its items, and a poll(2) loop of the
 * program's own with PULC's descriptor in it. Two processes play; alone, a process plays with itself.
 *   cc select.c -lpulc -o select && pulc run -n 2 ./select */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <poll.h>
#include <pulc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TURNS = 100 };

static void check(int code, const char *doing)
{
    if (code != PULC_OK) {
        fprintf(stderr, "select: %s: %s (%s)\n", doing, pulc_strerror(code), pulc_last_error());
        exit(1);
    }
}

static void want(int is, const char *what)
{
    if (!is) {
        fprintf(stderr, "select: %s\n", what);
        exit(1);
    }
}

static void put(int fd)
{
    want(write(fd, "x", 1) == 1, "cannot write to a pipe");
}

static void take(int fd)
{
    char byte;
    want(read(fd, &byte, 1) == 1, "cannot read from a pipe");
}

/* As long as there are messages and bytes under way, takes whichever is there. */
static void one_wait(pulc_port *port, const pulc_address *partner, int pipe_fds[2])
{
    int messages = 0, bytes = 0;
    char word[8];

    check(pulc_send(port, partner, 1, "word", 5, PULC_FOREVER), "send");
    put(pipe_fds[1]);
    while (messages < TURNS || bytes < TURNS) {
        pulc_item items[] = {
            {.kind = PULC_ITEM_FD, .fd = pipe_fds[0], .wanted = PULC_READABLE},
            {.kind = PULC_ITEM_FD, .fd = pipe_fds[1]}, /* only whether it ends */
            {.kind = PULC_ITEM_PORT, .object = port},
        };
        /* The partner may be in its next loop already: what it sends there is for the next loop here. */
        size_t ready, asked = messages < TURNS ? 3 : 2;
        check(pulc_select_items(items, asked, PULC_FOREVER, &ready), "select");
        want(ready == (items[0].ready != 0) + (size_t)(items[2].ready != 0), "the count is wrong");
        if (items[0].ready & PULC_READABLE) {
            take(pipe_fds[0]);
            if (++bytes < TURNS)
                put(pipe_fds[1]);
        }
        if (items[2].ready & PULC_READABLE) {
            check(pulc_recv(port, PULC_ANY_SOURCE, NULL, word, sizeof word, 0, NULL), "receive");
            if (++messages < TURNS)
                check(pulc_send(port, partner, 1, "word", 5, PULC_FOREVER), "send");
        }
    }
}

/* A loop of the program's own. */
static void own_loop(pulc_port *port, const pulc_address *partner, int pipe_fds[2])
{
    pulc_wakeup *wakeup;
    struct pollfd fds[2] = {{.events = POLLIN}, {.fd = pipe_fds[0], .events = POLLIN}};
    int messages = 0, bytes = 0;
    char word[8];

    check(pulc_wakeup_new(&wakeup), "wakeup");
    check(pulc_wakeup_fd(wakeup, &fds[0].fd), "descriptor");
    check(pulc_send(port, partner, 2, "word", 5, PULC_FOREVER), "send");
    put(pipe_fds[1]);
    for (;;) {
        /* 1. Take everything there is. After the last message nothing more is asked for: the partner may have ended. */
        int code = PULC_ERR_TIMEOUT;
        while (messages < TURNS && (code = pulc_recv(port, PULC_ANY_SOURCE, NULL, word, sizeof word, 0, NULL)) == PULC_OK)
            if (++messages < TURNS)
                check(pulc_send(port, partner, 2, "word", 5, PULC_FOREVER), "send");
        want(code == PULC_OK || code == PULC_ERR_TIMEOUT, pulc_last_error());
        if (messages >= TURNS && bytes >= TURNS)
            break;
        /* 2. Arm; it says when something has come meanwhile. */
        if (messages < TURNS) {
            pulc_item items[] = {{.kind = PULC_ITEM_PORT, .object = port}};
            size_t ready;
            check(pulc_wakeup_arm(wakeup, items, 1, &ready), "arm");
            if (ready > 0)
                continue;
        }
        /* 3. Wait for everything at once. */
        want(poll(fds, 2, 60000) >= 0, "cannot poll");
        if (fds[1].revents & POLLIN) {
            take(pipe_fds[0]);
            if (++bytes < TURNS)
                put(pipe_fds[1]);
        }
    }
    check(pulc_wakeup_free(wakeup), "free");
}

/* What is refused, and how. */
static void mistakes(pulc_port *port)
{
    size_t ready;
    pulc_wakeup *wakeup;
    pulc_item closed = {.kind = PULC_ITEM_FD, .fd = 1000000, .wanted = PULC_READABLE};
    pulc_item negative = {.kind = PULC_ITEM_FD, .fd = -1, .wanted = PULC_READABLE};
    pulc_item unknown = {.kind = 77};
    pulc_item nothing = {.kind = PULC_ITEM_PORT};
    pulc_item quiet = {.kind = PULC_ITEM_PORT, .object = port};

    want(pulc_select_items(&closed, 1, PULC_FOREVER, &ready) == PULC_ERR_ARGUMENT, "a closed descriptor was taken");
    want(pulc_select_items(&negative, 1, PULC_FOREVER, &ready) == PULC_ERR_ARGUMENT, "descriptor -1 was taken");
    want(pulc_select_items(&unknown, 1, PULC_FOREVER, &ready) == PULC_ERR_ARGUMENT, "an unknown kind was taken");
    want(pulc_select_items(&nothing, 1, PULC_FOREVER, &ready) == PULC_ERR_ARGUMENT, "no port was taken");
    want(pulc_select_items(NULL, 0, PULC_FOREVER, &ready) == PULC_ERR_ARGUMENT, "no item was taken");
    want(pulc_select_items(&quiet, 1, 1000, &ready) == PULC_ERR_TIMEOUT, "nothing was there");
    check(pulc_wakeup_new(&wakeup), "wakeup");
    want(pulc_wakeup_arm(wakeup, &closed, 1, &ready) == PULC_ERR_ARGUMENT, "a wakeup was armed for a descriptor");
    check(pulc_wakeup_free(wakeup), "free");
}

int main(void)
{
    uint32_t rank, size;
    pulc_port *port, *quiet;
    pulc_address *partner;
    int pipe_fds[2];

    check(pulc_attach(), "attach");
    check(pulc_rank(&rank), "rank");
    check(pulc_size(&size), "size");
    want(pipe(pipe_fds) == 0, "no pipe");
    if (size > 2 && rank >= size - size % 2) {
        printf("rank %" PRIu32 " has no partner\n", rank);
        return 0;
    }
    check(pulc_port_open("select", PULC_ORDERED, &port), "open");
    check(pulc_port_open("quiet", PULC_ORDERED, &quiet), "open");
    check(pulc_address_new(size == 1 ? 0 : rank ^ 1, "select", &partner), "address");
    mistakes(quiet);
    one_wait(port, partner, pipe_fds);
    own_loop(port, partner, pipe_fds);
    printf("rank %" PRIu32 ": %d messages and %d bytes in each of two loops\n", rank, TURNS, TURNS);
    check(pulc_port_close(quiet), "close");
    check(pulc_port_close(port), "close");
    check(pulc_address_free(partner), "free");
    return 0;
}
