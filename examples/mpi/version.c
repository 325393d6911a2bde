/* Says which MPI library this process got, and who it is in its job. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length, rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_library_version(text, &length);
    text[strcspn(text, "\n")] = '\0';
    printf("rank %d of %d: %s\n", rank, size, text);
    MPI_Finalize();
    return 0;
}
