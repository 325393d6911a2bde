/* Makes one of the mistakes that MPI programs make, named by its argument. Run by `cargo xtask mpi-doors`, which looks at how the
 * job ends and at what the user is told. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LONG (1 << 20)

static int rank, size;
static char bytes[LONG];

static int is(const char *mistake, const char *name) {
    return strcmp(mistake, name) == 0;
}

/* Waits for what the last rank will not do. */
static void wait_in_vain(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    sleep(1000);
}

static void wrong_arguments(const char *mistake) {
    int value = 0;
    if (rank != 1)
        wait_in_vain();
    if (is(mistake, "rank"))
        MPI_Send(&value, 1, MPI_INT, 9, 0, MPI_COMM_WORLD);
    if (is(mistake, "tag"))
        MPI_Send(&value, 1, MPI_INT, 0, -5, MPI_COMM_WORLD);
    if (is(mistake, "count"))
        MPI_Send(&value, -1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    if (is(mistake, "datatype"))
        MPI_Send(&value, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD);
    if (is(mistake, "communicator"))
        MPI_Send(&value, 1, MPI_INT, 0, 0, MPI_COMM_NULL);
    if (is(mistake, "buffer"))
        MPI_Send(NULL, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    if (is(mistake, "operation"))
        MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD);
}

static void truncation(int waits) {
    MPI_Comm named;
    MPI_Request request;
    MPI_Comm_dup(MPI_COMM_WORLD, &named);
    MPI_Comm_set_name(named, "pairs");
    if (rank == 0) {
        MPI_Send(bytes, 100, MPI_BYTE, 1, 0, named);
        wait_in_vain();
    }
    if (rank == 1 && waits) {
        MPI_Irecv(bytes, 10, MPI_BYTE, 0, 0, named, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    if (rank == 1)
        MPI_Recv(bytes, 10, MPI_BYTE, 0, 0, named, MPI_STATUS_IGNORE);
    wait_in_vain();
}

/* What is never received: a short message, and long ones whose senders would wait for ever. */
static void leftovers(void) {
    MPI_Request request;
    int to = (rank + 1) % size;
    MPI_Send(bytes, 8, MPI_BYTE, to, 0, MPI_COMM_WORLD);
    MPI_Isend(bytes, LONG, MPI_BYTE, to, 1, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
    MPI_Issend(bytes, 8, MPI_BYTE, to, 2, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
}

static void returned(void) {
    int value = 0, class = 0;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Error_class(MPI_Send(&value, 1, MPI_INT, size, 0, MPI_COMM_WORLD), &class);
    if (class != MPI_ERR_RANK)
        exit(2);
    MPI_Error_class(MPI_Bcast(&value, 1, MPI_INT, -7, MPI_COMM_WORLD), &class);
    if (class != MPI_ERR_ROOT)
        exit(3);
    MPI_Error_class(MPI_Send(&value, 1, MPI_INT, 0, -5, MPI_COMM_WORLD), &class);
    if (class != MPI_ERR_TAG)
        exit(4);
}

int main(int argc, char **argv) {
    const char *mistake = argc > 1 ? argv[1] : "";
    int value = 0;
    if (is(mistake, "early"))
        MPI_Send(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (is(mistake, "truncation") || is(mistake, "truncation in a wait"))
        truncation(is(mistake, "truncation in a wait"));
    else if (is(mistake, "leftovers"))
        leftovers();
    else if (is(mistake, "returned"))
        returned();
    else if (is(mistake, "late")) {
        MPI_Finalize();
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (rank != size - 1 && size > 1 && !is(mistake, "") && strncmp(mistake, "argument ", 9) != 0)
        wait_in_vain();
    else if (is(mistake, "abort"))
        MPI_Abort(MPI_COMM_WORLD, 7);
    else if (is(mistake, "abort on a part"))
        MPI_Abort(MPI_COMM_SELF, 9);
    else if (is(mistake, "exit"))
        exit(0);
    else if (is(mistake, "exit with a status"))
        exit(3);
    else if (is(mistake, "vanish"))
        _exit(0);
    else if (is(mistake, "killed"))
        raise(SIGKILL);
    else if (is(mistake, "crash"))
        raise(SIGSEGV);
    if (strncmp(mistake, "argument ", 9) == 0)
        wrong_arguments(mistake + 9);
    MPI_Finalize();
    return 0;
}
