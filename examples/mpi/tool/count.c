/* A profiling tool: takes MPI_Send, MPI_Barrier and MPI_Finalize, counts, and calls what it took by its other name. Loaded before a
 * program by `cargo xtask test`; what the library calls for itself must not be seen. */
#include <mpi.h>
#include <stdio.h>

static int sends, barriers;

int MPI_Send(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm) {
    sends++;
    return PMPI_Send(buf, count, datatype, dest, tag, comm);
}

int MPI_Barrier(MPI_Comm comm) {
    barriers++;
    return PMPI_Barrier(comm);
}

int MPI_Finalize(void) {
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    printf("tool of rank %d: %d sends, %d barriers\n", rank, sends, barriers);
    fflush(stdout);
    return PMPI_Finalize();
}
