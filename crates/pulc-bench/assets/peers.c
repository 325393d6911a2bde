/* What `pulc bench peers` runs under every MPI that it compares: compiled by each one's own compiler, started by its own launcher.
 * Rank 0 writes one line a figure: name, bytes, value (nanoseconds, bytes, bytes a second, messages a second, or seconds).
 *
 *   peers pair SECONDS [PLACE]     two ranks: one-way time and stream for many sizes, message rate
 *   peers short SECONDS [PLACE]    two ranks: one-way time for a few sizes, for places where some take milliseconds
 *   peers many SECONDS [PLACE]     any number: barrier, allreduce, broadcast, all-to-all; blocks of lengths that differ; scan
 *   peers blocked SECONDS [PLACE]  two ranks: processor time that rank 0 burns while it waits for a message that long
 *   peers memory SECONDS           any number: the largest share of memory of a rank, idle and after an all-to-all
 *   peers start SECONDS [PLACE]    any number: nothing
 *
 * SECONDS is the time for each figure. PLACE `pin`: rank r stays on the core r modulo their number; `one`: all ranks on the first core; without:
 * where the launcher has put them. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST = 16 << 20, MEBI = 1 << 20, WINDOW = 64, TRIES = 5 };

static int me, ranks;
static char *out, *in;
static double seconds;

/* The cores of the machine, whatever a launcher has left of them to this rank. */
static void pin(int all_on_one) {
    cpu_set_t allowed, one;
    memset(&one, 0xff, sizeof one);
    sched_setaffinity(0, sizeof one, &one);
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        return;
    int cores = CPU_COUNT(&allowed), wanted = all_on_one ? 0 : me % cores;
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &allowed) && wanted-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(core, &one);
            sched_setaffinity(0, sizeof one, &one);
            return;
        }
}

static void tell(const char *name, long bytes, double value) {
    if (me == 0) {
        printf("%s %ld %.9g\n", name, bytes, value);
        fflush(stdout);
    }
}

/* How often something that took `time` for `times` shall be done to fill the time of a figure; the same on all ranks. */
static long enough(double time, long times, long most) {
    double each = time / times, wanted = seconds / TRIES / (each > 1e-9 ? each : 1e-9);
    long count = wanted < 2 ? 2 : wanted > most ? most : (long)wanted;
    MPI_Bcast(&count, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    return count;
}

static double pingpong(long bytes, long times) {
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (long i = 0; i < times; i++)
        if (me == 0) {
            MPI_Send(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(in, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
    return MPI_Wtime() - begin;
}

/* Windows of messages one way, each answered by one word. */
static double stream(long bytes, long windows) {
    MPI_Request requests[WINDOW];
    char word = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (long w = 0; w < windows; w++) {
        for (int i = 0; i < WINDOW; i++)
            if (me == 0)
                MPI_Isend(out, bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[i]);
            else
                MPI_Irecv(in, bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[i]);
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        if (me == 0)
            MPI_Recv(&word, 1, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(&word, 1, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
    }
    return MPI_Wtime() - begin;
}

/* The least of some tries: what is not disturbed. */
static double best(double (*run)(long, long), long bytes, long first, long most) {
    double least = 1e9;
    run(bytes, first);
    long times = enough(run(bytes, first), first, most);
    for (int i = 0; i < TRIES; i++) {
        double each = run(bytes, times) / times;
        least = each < least ? each : least;
    }
    return least;
}

static void pair(void) {
    static const long sizes[] = {0, 8, 64, 1024, 4096, 16384, 65536, 262144, MEBI, 4 * MEBI, LONGEST};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        tell("latency", sizes[i], best(pingpong, sizes[i], 10, 1000000) / 2 * 1e9);
    tell("rate", 8, WINDOW / best(stream, 8, 10, 100000));
    for (size_t i = 3; i < sizeof sizes / sizeof *sizes - 2; i++)
        tell("stream", sizes[i], WINDOW * sizes[i] / best(stream, sizes[i], 2, 10000));
}

static void shortly(void) {
    static const long sizes[] = {8, 1024, 65536};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        tell("latency", sizes[i], best(pingpong, sizes[i], 10, 1000000) / 2 * 1e9);
}

enum { BARRIER, ALLREDUCE, BCAST, ALLTOALL, ALLTOALLV, ALLGATHERV, GATHERV, SCAN, REDUCE_SCATTER };
static int kind;
/* Blocks of rank 0, 1, ...: in turn as long as is said, and half as long. */
static int *lengths, *places, *own_lengths, *own_places;

static void lay_out(long bytes) {
    for (int rank = 0; rank < ranks; rank++) {
        lengths[rank] = kind == REDUCE_SCATTER ? bytes / 8 / ranks : bytes >> (rank & 1);
        own_lengths[rank] = bytes >> (me & 1);
        places[rank] = own_places[rank] = rank * bytes;
    }
}

static double collective(long bytes, long times) {
    lay_out(bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime(), own, slowest;
    for (long i = 0; i < times; i++)
        switch (kind) {
        case BARRIER: MPI_Barrier(MPI_COMM_WORLD); break;
        case ALLREDUCE: MPI_Allreduce(out, in, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); break;
        case BCAST: MPI_Bcast(out, bytes, MPI_BYTE, 0, MPI_COMM_WORLD); break;
        case ALLTOALL: MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD); break;
        case ALLTOALLV:
            MPI_Alltoallv(out, own_lengths, own_places, MPI_BYTE, in, lengths, places, MPI_BYTE, MPI_COMM_WORLD);
            break;
        case ALLGATHERV:
            MPI_Allgatherv(out, lengths[me], MPI_BYTE, in, lengths, places, MPI_BYTE, MPI_COMM_WORLD);
            break;
        case GATHERV:
            MPI_Gatherv(out, lengths[me], MPI_BYTE, in, lengths, places, MPI_BYTE, 0, MPI_COMM_WORLD);
            break;
        case SCAN: MPI_Scan(out, in, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); break;
        case REDUCE_SCATTER: MPI_Reduce_scatter(out, in, lengths, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); break;
        }
    own = MPI_Wtime() - begin;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static void one(const char *name, int what, long bytes) {
    kind = what;
    tell(name, bytes, best(collective, bytes, 4, 100000) * 1e9);
}

static void many(void) {
    one("barrier", BARRIER, 0);
    one("allreduce", ALLREDUCE, 8);
    one("allreduce", ALLREDUCE, MEBI);
    one("bcast", BCAST, MEBI);
    one("alltoall", ALLTOALL, 1024);
    one("alltoallv", ALLTOALLV, 1024);
    one("allgatherv", ALLGATHERV, 1024);
    one("gatherv", GATHERV, 1024);
    one("scan", SCAN, 8);
    one("scan", SCAN, 65536);
    one("reduce_scatter", REDUCE_SCATTER, 65536);
}

static void blocked(void) {
    struct rusage before, after;
    char word = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == 1) {
        struct timespec rest = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
        nanosleep(&rest, NULL);
        MPI_Send(&word, 1, MPI_BYTE, 0, 4, MPI_COMM_WORLD);
        return;
    }
    getrusage(RUSAGE_SELF, &before);
    MPI_Recv(&word, 1, MPI_BYTE, 1, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    getrusage(RUSAGE_SELF, &after);
    double burnt = 0;
#define ADD(part) burnt += after.part.tv_sec - before.part.tv_sec + (after.part.tv_usec - before.part.tv_usec) * 1e-6
    ADD(ru_utime);
    ADD(ru_stime);
    tell("blocked", 0, burnt / seconds);
}

/* Pages that only this process has, and its part of those that it shares; of the rank that has most. */
static void tell_share(const char *name, long bytes) {
    double share = 0, most = 0;
    char line[256];
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    if (!file)
        MPI_Abort(MPI_COMM_WORLD, 4);
    while (fgets(line, sizeof line, file)) {
        long kib;
        if (sscanf(line, "Pss: %ld kB", &kib) == 1)
            share = kib * 1024.0;
    }
    fclose(file);
    MPI_Reduce(&share, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    tell(name, bytes, most);
}

static void memory(void) {
    enum { BLOCK = 1024 };
    tell_share("idle", 0);
    char *from = malloc((size_t)ranks * BLOCK), *to = malloc((size_t)ranks * BLOCK);
    if (!from || !to)
        MPI_Abort(MPI_COMM_WORLD, 3);
    memset(from, 2, (size_t)ranks * BLOCK);
    MPI_Alltoall(from, BLOCK, MPI_BYTE, to, BLOCK, MPI_BYTE, MPI_COMM_WORLD);
    tell_share("share", BLOCK);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 3) {
        if (me == 0)
            fprintf(stderr, "usage: peers pair|short|many|blocked|memory|start SECONDS [pin|one]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    seconds = atof(argv[2]);
    if (argc > 3)
        pin(strcmp(argv[3], "one") == 0);
    if (strcmp(argv[1], "start") == 0) {
        MPI_Finalize();
        return 0;
    }
    if (strcmp(argv[1], "memory") == 0) {
        memory();
        MPI_Finalize();
        return 0;
    }
    size_t longest = LONGEST > ranks * 1024L ? LONGEST : ranks * 1024L;
    out = malloc(longest);
    in = malloc(longest);
    size_t numbers = ranks * sizeof *lengths;
    lengths = malloc(numbers), places = malloc(numbers);
    own_lengths = malloc(numbers), own_places = malloc(numbers);
    if (!out || !in || !lengths || !places || !own_lengths || !own_places)
        MPI_Abort(MPI_COMM_WORLD, 3);
    memset(in, 1, longest);
    /* Memory that was never written is the kernel's one page of zeros, again and again: no program sends that, and it lies in every cache. */
    memset(out, 2, longest);
    if (strcmp(argv[1], "pair") == 0 && ranks == 2)
        pair();
    else if (strcmp(argv[1], "short") == 0 && ranks == 2)
        shortly();
    else if (strcmp(argv[1], "many") == 0)
        many();
    else if (strcmp(argv[1], "blocked") == 0 && ranks == 2)
        blocked();
    else
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Finalize();
    return 0;
}
