/* Messages around a ring, then what everybody knows together. Compiled for both binary interfaces and run by `cargo xtask test`. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(what)                                                          \
    do {                                                                     \
        if (!(what)) {                                                       \
            fprintf(stderr, "%s:%d: %s is not so\n", __FILE__, __LINE__, #what); \
            MPI_Abort(MPI_COMM_WORLD, 3);                                    \
        }                                                                    \
    } while (0)

static void around(int rank, int size) {
    int next = (rank + 1) % size, before = (rank + size - 1) % size, sent = 100 + rank, got = -1, count = -1;
    MPI_Request request;
    MPI_Status status;
    CHECK(MPI_Isend(&sent, 1, MPI_INT, next, 7, MPI_COMM_WORLD, &request) == MPI_SUCCESS);
    CHECK(MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &status) == MPI_SUCCESS);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS && request == MPI_REQUEST_NULL);
    CHECK(got == 100 + before && status.MPI_SOURCE == before && status.MPI_TAG == 7);
    CHECK(MPI_Get_count(&status, MPI_INT, &count) == MPI_SUCCESS && count == 1);
    CHECK(MPI_Sendrecv(&sent, 1, MPI_INT, MPI_PROC_NULL, 0, &got, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status)
          == MPI_SUCCESS);
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
}

static void many(int rank, int size) {
    int *got = malloc(sizeof(int) * size);
    MPI_Request *requests = malloc(2 * sizeof(MPI_Request) * size);
    MPI_Status *statuses = malloc(2 * sizeof(MPI_Status) * size);
    for (int peer = 0; peer < size; peer++) {
        MPI_Irecv(&got[peer], 1, MPI_INT, peer, 1, MPI_COMM_WORLD, &requests[peer]);
        MPI_Isend(&rank, 1, MPI_INT, peer, 1, MPI_COMM_WORLD, &requests[size + peer]);
    }
    CHECK(MPI_Waitall(2 * size, requests, statuses) == MPI_SUCCESS);
    for (int peer = 0; peer < size; peer++) {
        CHECK(got[peer] == peer && statuses[peer].MPI_SOURCE == peer && requests[peer] == MPI_REQUEST_NULL);
    }
    free(got);
    free(requests);
    free(statuses);
}

static void together(int rank, int size) {
    double part = rank + 1, sum = 0;
    MPI_Count one = 1;
    int all = 0, color = rank % 2;
    MPI_Comm half;
    CHECK(MPI_Allreduce_c(&part, &sum, one, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(sum == size * (size + 1) / 2.0);
    CHECK(MPI_Allreduce(MPI_IN_PLACE, &part, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD) == MPI_SUCCESS && part == size);
    CHECK(MPI_Comm_split(MPI_COMM_WORLD, color, rank, &half) == MPI_SUCCESS && half != MPI_COMM_NULL);
    CHECK(MPI_Comm_size(half, &all) == MPI_SUCCESS && all == (size + 1 - color) / 2);
    CHECK(MPI_Comm_compare(half, MPI_COMM_WORLD, &all) == MPI_SUCCESS);
    CHECK(all == (size == 1 ? MPI_CONGRUENT : MPI_UNEQUAL));
    CHECK(MPI_Comm_free(&half) == MPI_SUCCESS && half == MPI_COMM_NULL);
}

int main(int argc, char **argv) {
    int rank, size, level = -1, found = 0, *limit = NULL;
    CHECK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level) == MPI_SUCCESS && level >= MPI_THREAD_SINGLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &found) == MPI_SUCCESS && found && *limit >= 32767);
    around(rank, size);
    many(rank, size);
    together(rank, size);
    MPI_Finalize();
    return 0;
}
