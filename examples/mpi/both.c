/* MPI and ports in one process, under one blocking wait: rank 0 sleeps until whichever comes first, a message of MPI, one at its port,
 * the end of a nonblocking collective, or a byte in a pipe. The others send in an order of their own.
 *   mpicc both.c -lpulc -o both && mpiexec -n 2 ./both [ports-first] */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <pulc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TURNS = 200, TAG = 7 };

static void check(int code, const char *doing)
{
    if (code != PULC_OK) {
        fprintf(stderr, "both: %s: %s (%s)\n", doing, pulc_strerror(code), pulc_last_error());
        exit(1);
    }
}

static void want(int is, const char *what)
{
    if (!is) {
        fprintf(stderr, "both: %s\n", what);
        exit(1);
    }
}

/* Rank 0: takes what comes and answers, so that only one thing is under way at a time: whatever is missed is missed for good. */
static void take(pulc_port *port, int from)
{
    int by_mpi = 0, by_port = 0, number = -1, word;
    MPI_Request request;
    pulc_address *answer_to;

    check(pulc_address_new((uint32_t)from, "answers", &answer_to), "address");
    MPI_Irecv(&number, 1, MPI_INT, from, TAG, MPI_COMM_WORLD, &request);
    while (by_mpi + by_port < TURNS) {
        pulc_item items[] = {
            {.kind = PULC_ITEM_PORT, .object = port},
            {.kind = PULC_ITEM_REQUEST, .object = &request},
        };
        size_t ready;
        check(pulc_select_items(items, 2, PULC_FOREVER, &ready), "select");
        want(ready == 1, "one thing was under way, and another number was ready");
        if (items[0].ready) {
            pulc_envelope envelope;
            check(pulc_recv(port, PULC_ANY_SOURCE, NULL, &word, sizeof word, 0, &envelope), "receive");
            want(word == by_mpi + by_port, "a message at the port is not the one sent");
            by_port++;
            MPI_Send(&word, 1, MPI_INT, from, TAG, MPI_COMM_WORLD);
        } else {
            int is_there = 0;
            MPI_Test(&request, &is_there, MPI_STATUS_IGNORE);
            want(is_there && number == by_mpi + by_port, "a message of MPI is not the one sent");
            by_mpi++;
            check(pulc_send(port, answer_to, 0, &number, sizeof number, PULC_FOREVER), "answer");
            MPI_Irecv(&number, 1, MPI_INT, from, TAG, MPI_COMM_WORLD, &request);
        }
    }
    want(by_mpi > 0 && by_port > 0, "everything came by one way");
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    pulc_address_free(answer_to);
}

/* Another rank: now this way, now that way, each answered by the other one. */
static void give(pulc_port *answers, unsigned seed)
{
    pulc_address *to;
    check(pulc_address_new(0, "both", &to), "address");
    for (int turn = 0; turn < TURNS; turn++) {
        int word = -1;
        seed = seed * 1103515245u + 12345u;
        if ((seed >> 16) & 1) {
            MPI_Send(&turn, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
            check(pulc_recv(answers, PULC_ANY_SOURCE, NULL, &word, sizeof word, PULC_FOREVER, NULL), "receive");
        } else {
            check(pulc_send(answers, to, 0, &turn, sizeof turn, PULC_FOREVER), "send");
            MPI_Recv(&word, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        want(word == turn, "an answer is not to what was sent");
    }
    pulc_address_free(to);
}

/* A collective ends while its process sleeps in the wait of the ports; a pipe is among the items as well. */
static void collective(pulc_port *port, int rank, int size)
{
    int fds[2], sum = 0, one = rank + 1;
    size_t ready;
    MPI_Request request;

    want(pipe(fds) == 0, "no pipe");
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    pulc_item items[] = {
        {.kind = PULC_ITEM_REQUEST, .object = &request},
        {.kind = PULC_ITEM_FD, .fd = fds[0], .wanted = PULC_READABLE},
        {.kind = PULC_ITEM_PORT, .object = port},
    };
    check(pulc_select_items(items, 3, PULC_FOREVER, &ready), "select");
    want(ready == 1 && items[0].ready == PULC_READABLE && !items[1].ready, "the collective was not what was ready");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    want(sum == size * (size + 1) / 2, "the sum is wrong");
    /* A null request is never ready: the pipe is. */
    want(request == MPI_REQUEST_NULL && write(fds[1], "x", 1) == 1, "no byte in the pipe");
    check(pulc_select_items(items, 3, PULC_FOREVER, &ready), "select");
    want(ready == 1 && items[1].ready == PULC_READABLE, "the byte was not what was ready");
    want(pulc_select_items(items, 1, 1000, &ready) == PULC_ERR_TIMEOUT, "a null request was ready");
    close(fds[0]);
    close(fds[1]);
}

int main(int argc, char **argv)
{
    int rank, size;
    pulc_port *port;
    int ports_first = argc > 1 && strcmp(argv[1], "ports-first") == 0;

    if (ports_first)
        check(pulc_attach(), "attach");
    MPI_Init(&argc, &argv);
    if (!ports_first)
        check(pulc_attach(), "attach");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    check(pulc_port_open(rank == 0 ? "both" : "answers", PULC_ORDERED, &port), "open");
    MPI_Barrier(MPI_COMM_WORLD);
    for (int other = 1; other < size; other++) {
        if (rank == 0)
            take(port, other);
        else if (rank == other)
            give(port, (unsigned)other);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    collective(port, rank, size);
    check(pulc_port_close(port), "close");
    MPI_Finalize();
    if (rank == 0)
        printf("MPI and ports in one process and one wait: %d ranks\n", size);
    return 0;
}
