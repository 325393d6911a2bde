# Open MPI that may only use TCP: sums, exchanges of all lengths and a ring, with their checksums. Started by services.rs; $ON stands before it.
set -eu
ip link set lo up
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >program.c <<'C'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST (1 << 20)
static unsigned char to[LONGEST], from[LONGEST];

static unsigned long sum(const unsigned char *bytes, int len) {
    unsigned long sum = 5381;
    for (int i = 0; i < len; i++)
        sum = sum * 33 + bytes[i];
    return sum;
}

int main(int argc, char **argv) {
    int me, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    unsigned seed = 7 + me;
    for (int i = 0; i < LONGEST; i++)
        to[i] = (seed = seed * 1103515245 + 12345) >> 16;
    for (int len = 0; len <= LONGEST; len = len < 4 ? len + 1 : len * 3 / 2 > LONGEST && len < LONGEST ? LONGEST : len * 3 / 2) {
        unsigned long mine, all;
        for (int times = 0; times < (len < 10000 ? 20 : 2); times++) {
            memset(from, 0, len);
            MPI_Sendrecv(to, len, MPI_BYTE, (me + 1) % ranks, 1, from, len, MPI_BYTE, (me + ranks - 1) % ranks, 1, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
        }
        mine = sum(from, len);
        MPI_Allreduce(&mine, &all, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
        if (me == 0)
            printf("%d %lx\n", len, all);
    }
    for (int len = 1; len * ranks <= LONGEST; len *= 8) {
        unsigned long mine, all;
        MPI_Alltoall(to, len, MPI_BYTE, from, len, MPI_BYTE, MPI_COMM_WORLD);
        mine = sum(from, len * ranks);
        MPI_Reduce(&mine, &all, 1, MPI_UNSIGNED_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
        if (me == 0)
            printf("all to all %d %lx\n", len, all);
    }
    MPI_Finalize();
    return 0;
}
C
mpicc.openmpi -O1 -o program program.c
# In a network of its own there is only loopback, and in a user namespace everybody is root.
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 $ON mpirun.openmpi --oversubscribe --mca btl tcp,self \
    --mca btl_tcp_if_include lo --mca oob_tcp_if_include lo -n 4 ./program
[ -z "$ON" ] || $PULC sockets | grep '^so far'
