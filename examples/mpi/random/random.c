/* A correct MPI program made by dice: messages with and without wildcards, collectives, communicators and datatypes, many of them under
 * way at once. Every process knows what has to arrive and ends the job when something else does.
 *
 *     mpicc -o random random.c plan.c layouts.c messages.c collectives.c communicators.c
 *     mpiexec -n 5 ./random SEED [STEPS]
 */
#include "random.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct group groups[GROUPS];
int world_rank, world_size;

static uint64_t seed;
static int step;

void fail(const char *format, ...) {
    char text[400];
    va_list more;
    va_start(more, format);
    vsnprintf(text, sizeof text, format, more);
    va_end(more);
    fprintf(stderr, "random: rank %d, seed %llu, step %d: %s\n", world_rank, (unsigned long long)seed, step, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

int main(int argc, char **argv) {
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    int steps = argc > 2 ? atoi(argv[2]) : 100;
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    /* For buffered sends, all of which have arrived when their step is over. */
    static char room[16 << 20];
    MPI_Buffer_attach(room, sizeof room);
    for (int slot = 0; slot < GROUPS; slot++)
        groups[slot].comm = MPI_COMM_NULL;
    adopt(&groups[0], MPI_COMM_WORLD);

    struct dice own = dice_of(seed, 77, (uint64_t)world_rank);
    for (step = 0; step < steps; step++) {
        struct dice common = dice_of(seed, (uint64_t)step, 0);
        if (below(&common, 4) == 0) {
            int slot = 1 + below(&common, GROUPS - 1), parent = below(&common, GROUPS);
            remake(slot, parent == slot ? 0 : parent, &common);
        }
        int talked[GROUPS] = {0}, messages = 0;
        for (int left = 1 + below(&common, 4); left > 0; left--) {
            int slot = below(&common, GROUPS), talks = below(&common, 3) == 0;
            const struct group *group = &groups[slot];
            uint64_t salt = roll(&common);
            if (talks && talked[slot]++)
                continue;
            messages += talks;
            if (group->comm == MPI_COMM_NULL)
                continue;
            struct dice dice = dice_of(salt, (uint64_t)group->members[0], 5);
            if (talks)
                exchange_messages(group, &dice, salt);
            else
                collective(group, &dice, salt);
        }
        finish_works(&own);
        /* A receive from anybody must not find a message of the next step. */
        if (messages)
            MPI_Barrier(MPI_COMM_WORLD);
    }
    for (int slot = 1; slot < GROUPS; slot++)
        if (groups[slot].comm != MPI_COMM_NULL)
            MPI_Comm_free(&groups[slot].comm);
    void *detached;
    int bytes;
    MPI_Buffer_detach(&detached, &bytes);
    MPI_Finalize();
    if (world_rank == 0)
        printf("random: seed %llu, %d steps with %d processes: everything arrived as it was sent\n", (unsigned long long)seed, steps,
               world_size);
    return 0;
}
