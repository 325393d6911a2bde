/* Functions of the program that MPI calls, each with the handles of the binary interface it was compiled for: a reduction, an error
 * handler, attributes; and an error that is returned. Run by `cargo xtask test`. */
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

static int reductions, errors, copies, deletions;

static void larger(void *in, void *inout, int *len, MPI_Datatype *type) {
    reductions += *type == MPI_INT;
    for (int at = 0; at < *len; at++) {
        if (((int *)in)[at] > ((int *)inout)[at]) ((int *)inout)[at] = ((int *)in)[at];
    }
}

static void heard(MPI_Comm *comm, int *code, ...) {
    int class = -1;
    MPI_Error_class(*code, &class);
    errors += *comm == MPI_COMM_WORLD && class == MPI_ERR_RANK;
}

static int copied(MPI_Comm comm, int key, void *state, void *in, void *out, int *flag) {
    (void)key;
    copies += comm == MPI_COMM_WORLD && state == &copies;
    *(void **)out = (char *)in + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int deleted(MPI_Comm comm, int key, void *value, void *state) {
    (void)comm, (void)key, (void)state;
    deletions += value != NULL;
    return MPI_SUCCESS;
}

int main(int argc, char **argv) {
    int rank, size, best, key, found, class, x = 0;
    char room[8], *value;
    MPI_Op op;
    MPI_Errhandler handler;
    MPI_Comm other;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    CHECK(MPI_Op_create(larger, 1, &op) == MPI_SUCCESS);
    CHECK(MPI_Allreduce(&rank, &best, 1, MPI_INT, op, MPI_COMM_WORLD) == MPI_SUCCESS && best == size - 1);
    CHECK(MPI_Op_free(&op) == MPI_SUCCESS && op == MPI_OP_NULL);
    CHECK(MPI_Allreduce(MPI_IN_PLACE, &reductions, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(size == 1 || reductions > 0);

    CHECK(MPI_Comm_create_errhandler(heard, &handler) == MPI_SUCCESS);
    CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler) == MPI_SUCCESS && MPI_Errhandler_free(&handler) == MPI_SUCCESS);
    /* What a call returns after a handler of the program's has returned is the implementation's choice. */
    MPI_Send(&x, 1, MPI_INT, size, 0, MPI_COMM_WORLD);
    CHECK(errors == 1);
    CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN) == MPI_SUCCESS);
    CHECK(MPI_Error_class(MPI_Send(&x, -1, MPI_INT, 0, 0, MPI_COMM_WORLD), &class) == MPI_SUCCESS && class == MPI_ERR_COUNT);

    CHECK(MPI_Comm_create_keyval(copied, deleted, &key, &copies) == MPI_SUCCESS);
    CHECK(MPI_Comm_set_attr(MPI_COMM_WORLD, key, room) == MPI_SUCCESS);
    CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &other) == MPI_SUCCESS && copies == 1);
    CHECK(MPI_Comm_get_attr(other, key, &value, &found) == MPI_SUCCESS && found && value == room + 1);
    CHECK(MPI_Comm_free(&other) == MPI_SUCCESS && deletions == 1);
    CHECK(MPI_Comm_delete_attr(MPI_COMM_WORLD, key) == MPI_SUCCESS && deletions == 2);
    CHECK(MPI_Comm_free_keyval(&key) == MPI_SUCCESS && key == MPI_KEYVAL_INVALID);
    MPI_Finalize();
    return 0;
}
