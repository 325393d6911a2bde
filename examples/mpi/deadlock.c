/* Stands still for ever, on purpose, for `pulc why`: ranks 0 and 1 receive from each other and neither sends, all others wait for
 * them in a barrier. The first rank says the job's number before. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank, word = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    /* So many that the members meet in shared memory by now. */
    for (int turn = 0; turn < 20; turn++)
        MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        const char *job = getenv("PULC_JOBID");
        printf("%s\n", job ? job : "no job");
        fflush(stdout);
    }
    if (rank < 2)
        MPI_Recv(&word, 1, MPI_INT, 1 - rank, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
