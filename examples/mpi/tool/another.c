/* As little of an MPI as version.c calls: what a program finds that insists on a library of its own. */
#include <mpi.h>
#include <string.h>

int MPI_Init(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    return MPI_SUCCESS;
}

int MPI_Comm_rank(MPI_Comm comm, int *rank)
{
    (void)comm;
    *rank = 0;
    return MPI_SUCCESS;
}

int MPI_Comm_size(MPI_Comm comm, int *size)
{
    (void)comm;
    *size = 1;
    return MPI_SUCCESS;
}

int MPI_Get_library_version(char *version, int *resultlen)
{
    strcpy(version, "another MPI");
    *resultlen = (int)strlen(version);
    return MPI_SUCCESS;
}

int MPI_Finalize(void)
{
    return MPI_SUCCESS;
}
