/* Heat diffusion on MPI: the same plate, steps and checks as `pulc heat`, which runs on PULC's ports, and the same field to the last
 * bit. Neighbours exchange their edges in every step by persistent requests; every 20 steps the plate is gathered to rank 0 while the
 * computation goes on. Compile without fused operations: mpicc -O2 -ffp-contract=off heat.c -o heat-mpi -lm
 *
 * heat-mpi [--size WIDTHxHEIGHT] [--steps N] [-r R] [--boundary fixed|insulated] [--gather-every N] [--json]
 */
#include <float.h>
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double PI = 3.14159265358979323846;
static int rank, size;
static int rows = 512, columns = 512, insulated = 0, json = 0;
static long steps = 2000, gather_every = 20;
static double r = 0.25;

/* The band of whole rows of one rank, with a row and a column of ghost cells around it. */
typedef struct {
    int first, rows, stride;
    double *now, *next;
    /* By which of the two fields is `now`: four messages each. */
    MPI_Request edges[2][4];
} Band;

static void fail(const char *why) {
    fprintf(stderr, "heat-mpi: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

static void *room(size_t bytes) {
    void *memory = calloc(1, bytes ? bytes : 1);
    if (memory == NULL)
        fail("there is no memory for a plate of this size");
    return memory;
}

static int rows_of(int of) {
    return rows / size + (of < rows % size);
}

static int first_of(int of) {
    return of * (rows / size) + (of < rows % size ? of : rows % size);
}

/* The slowest mode along one direction. */
static double mode(int index, int n) {
    return sin(PI * (index + 1) / (n + 1));
}

static double clamp(double value) {
    return value < 0.0 ? 0.0 : value > 1.0 ? 1.0 : value;
}

static double length(double x, double y) {
    return sqrt(x * x + y * y);
}

static double lower(double a, double b) {
    return a < b ? a : b;
}

static double stroke(double x, double y, double x0, double y0, double x1, double y1) {
    double dx = x1 - x0, dy = y1 - y0;
    double along = clamp(((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy));
    return length(x - x0 - along * dx, y - y0 - along * dy);
}

/* Distance from the strokes of a letter of the word PULC. */
static double letter(int which, double x, double y) {
    double away;
    switch (which) {
    case 0:
        away = lower(lower(stroke(x, y, 0, -0.5, 0, 0.5), stroke(x, y, 0, -0.5, 0.28, -0.5)),
                     stroke(x, y, 0, 0.04, 0.28, 0.04));
        return x >= 0.28 ? lower(away, fabs(length(x - 0.28, y + 0.23) - 0.27)) : away;
    case 1:
        away = lower(stroke(x, y, 0, -0.5, 0, 0.22), stroke(x, y, 0.56, -0.5, 0.56, 0.22));
        return y >= 0.22 ? lower(away, fabs(length(x - 0.28, y - 0.22) - 0.28)) : away;
    case 2:
        return lower(stroke(x, y, 0, -0.5, 0, 0.5), stroke(x, y, 0, 0.5, 0.50, 0.5));
    default:
        away = lower(stroke(x, y, 0, -0.22, 0, 0.22), length(x - 0.56, fabs(y) - 0.22));
        if (y <= -0.22)
            away = lower(away, fabs(length(x - 0.28, y + 0.22) - 0.28));
        return y >= 0.22 ? lower(away, fabs(length(x - 0.28, y - 0.22) - 0.28)) : away;
    }
}

/* The word PULC, glowing on a cold plate. */
static double glow(int row, int column) {
    static const double left[4] = {0.0, 0.95, 1.93, 2.83};
    const double word = 2.83 + 0.56, pen = 0.095;
    double aspect = (double)columns / rows, high = lower(0.62, aspect * 0.84 / word), away = INFINITY;
    double y = (row + 0.5) / rows, x = (column + 0.5) / columns * aspect;
    x = (x - aspect / 2.0) / high + word / 2.0;
    y = (y - 0.5) / high;
    for (int which = 0; which < 4; which++)
        away = lower(away, letter(which, x - left[which], y));
    return clamp((pen - away) / 0.03 + 0.5);
}

static void make(Band *band, int is_mode) {
    band->first = first_of(rank);
    band->rows = rows_of(rank);
    band->stride = columns + 2;
    size_t cells = (size_t)(band->rows + 2) * band->stride;
    band->now = room(cells * sizeof(double));
    band->next = room(cells * sizeof(double));
    for (int row = 0; row < band->rows; row++)
        for (int column = 0; column < columns; column++)
            band->now[(size_t)(row + 1) * band->stride + column + 1] =
                is_mode ? mode(band->first + row, rows) * mode(column, columns) : glow(band->first + row, column);
    int up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
    double *fields[2] = {band->now, band->next};
    for (int which = 0; which < 2; which++) {
        double *top = fields[which] + 1, *bottom = top + (size_t)(band->rows + 1) * band->stride;
        MPI_Request *edges = band->edges[which];
        MPI_Recv_init(top, columns, MPI_DOUBLE, up, 1, MPI_COMM_WORLD, &edges[0]);
        MPI_Recv_init(bottom, columns, MPI_DOUBLE, down, 0, MPI_COMM_WORLD, &edges[1]);
        MPI_Send_init(top + band->stride, columns, MPI_DOUBLE, up, 0, MPI_COMM_WORLD, &edges[2]);
        MPI_Send_init(bottom - band->stride, columns, MPI_DOUBLE, down, 1, MPI_COMM_WORLD, &edges[3]);
    }
}

static void drop(Band *band) {
    for (int which = 0; which < 8; which++)
        MPI_Request_free(&band->edges[which / 4][which % 4]);
    free(band->now);
    free(band->next);
}

static void compute(Band *band, int from, int to) {
    for (int row = from; row < to; row++) {
        const double *here = band->now + (size_t)(row + 1) * band->stride + 1;
        const double *up = here - band->stride, *down = here + band->stride;
        double *out = band->next + (size_t)(row + 1) * band->stride + 1;
        for (int i = 0; i < columns; i++)
            out[i] = here[i] + r * (((up[i] + down[i]) + (here[i - 1] + here[i + 1])) - 4.0 * here[i]);
    }
}

/* No heat passes an insulated rim: a ghost cell has the temperature of the cell that it mirrors. */
static void mirror(Band *band) {
    size_t line = columns * sizeof(double), stride = band->stride;
    if (rank == 0)
        memcpy(band->now + 1, band->now + stride + 1, line);
    if (rank == size - 1)
        memcpy(band->now + (band->rows + 1) * stride + 1, band->now + band->rows * stride + 1, line);
    for (int row = 1; row <= band->rows; row++) {
        band->now[row * stride] = band->now[row * stride + 1];
        band->now[row * stride + columns + 1] = band->now[row * stride + columns];
    }
}

static void step(Band *band, int which, int is_insulated) {
    if (is_insulated)
        mirror(band);
    MPI_Startall(4, band->edges[which]);
    compute(band, 1, band->rows - 1);
    MPI_Waitall(4, band->edges[which], MPI_STATUSES_IGNORE);
    compute(band, 0, 1);
    if (band->rows > 1)
        compute(band, band->rows - 1, band->rows);
    double *other = band->now;
    band->now = band->next;
    band->next = other;
}

/* Gathers the plate to rank 0, from a copy, so that the steps go on meanwhile. */
typedef struct {
    double *own, *whole;
    int *counts, *places;
    MPI_Datatype line;
    MPI_Request request;
} Gather;

static void gather_make(Gather *gather) {
    gather->own = room((size_t)rows_of(rank) * columns * sizeof(double));
    gather->whole = rank == 0 ? room((size_t)rows * columns * sizeof(double)) : NULL;
    gather->counts = room(size * sizeof(int));
    gather->places = room(size * sizeof(int));
    for (int of = 0; of < size; of++) {
        gather->counts[of] = rows_of(of);
        gather->places[of] = first_of(of);
    }
    MPI_Type_contiguous(columns, MPI_DOUBLE, &gather->line);
    MPI_Type_commit(&gather->line);
    gather->request = MPI_REQUEST_NULL;
}

static void gather_begin(Gather *gather, const Band *band) {
    MPI_Wait(&gather->request, MPI_STATUS_IGNORE);
    for (int row = 0; row < band->rows; row++)
        memcpy(gather->own + (size_t)row * columns, band->now + (size_t)(row + 1) * band->stride + 1,
               columns * sizeof(double));
    MPI_Igatherv(gather->own, band->rows, gather->line, gather->whole, gather->counts, gather->places, gather->line, 0,
                 MPI_COMM_WORLD, &gather->request);
}

static void gather_whole(Gather *gather, const Band *band) {
    gather_begin(gather, band);
    MPI_Wait(&gather->request, MPI_STATUS_IGNORE);
}

static void gather_drop(Gather *gather) {
    MPI_Type_free(&gather->line);
    free(gather->own);
    free(gather->whole);
    free(gather->counts);
    free(gather->places);
}

/* Sum of the plate and of its absolute values, with compensated addition (Neumaier). */
static double sum_of(const double *plate, double *absolute) {
    double sum = 0.0, lost = 0.0, all = 0.0;
    for (size_t i = 0; i < (size_t)rows * columns; i++) {
        double total = sum + plate[i];
        lost += fabs(sum) >= fabs(plate[i]) ? (sum - total) + plate[i] : (plate[i] - total) + sum;
        sum = total;
        all += fabs(plate[i]);
    }
    *absolute = all;
    return sum + lost;
}

/* FNV-1a over the bits. */
static uint64_t hash_of(const double *plate) {
    uint64_t hash = 0xcbf29ce484222325u;
    const unsigned char *bytes = (const unsigned char *)plate;
    for (size_t i = 0; i < (size_t)rows * columns * sizeof(double); i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

/* Largest deviation from the exact decay of the slowest mode, relative to its height. */
static double mode_error(const double *plate, long after) {
    double down = sin(PI / (rows + 1) / 2.0), across = sin(PI / (columns + 1) / 2.0), worst = 0.0, height = 0.0;
    double factor = exp(after * log1p(-4.0 * r * (down * down + across * across)));
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++) {
            double exact = factor * (mode(row, rows) * mode(column, columns));
            double off = fabs(plate[(size_t)row * columns + column] - exact);
            if (!(off <= worst))
                worst = off;
            height = fmax(height, fabs(exact));
        }
    return worst / height;
}

static void options(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *flag = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(flag, "--json") == 0) {
            json = 1;
            continue;
        }
        i++;
        if (strcmp(flag, "--size") == 0 && sscanf(value, "%dx%d", &columns, &rows) == 2)
            continue;
        if (strcmp(flag, "--boundary") == 0 && (strcmp(value, "fixed") == 0 || strcmp(value, "insulated") == 0)) {
            insulated = value[0] == 'i';
            continue;
        }
        char *end = NULL;
        if (strcmp(flag, "--steps") == 0)
            steps = strtol(value, &end, 10);
        else if (strcmp(flag, "--gather-every") == 0)
            gather_every = strtol(value, &end, 10);
        else if (strcmp(flag, "-r") == 0)
            r = strtod(value, &end);
        if (end == NULL || end == value || *end != '\0')
            fail("flags are --size WIDTHxHEIGHT, --steps N, -r R, --boundary fixed|insulated, --gather-every N, --json");
    }
    if (rows < size || columns < 1 || steps < 0 || gather_every < 0 || !(r > 0.0 && r <= 0.25))
        fail("every rank needs a row, r is above 0 and at most 0.25");
}

/* How many nodes the ranks are on. */
static int nodes(void) {
    MPI_Comm node;
    int in_node, first, all;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &in_node);
    first = in_node == 0;
    MPI_Allreduce(&first, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_free(&node);
    return all;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    options(argc, argv);
    Band band;
    Gather gather;
    double absolute = 0.0, ignored, before = 0.0;
    make(&band, 0);
    gather_make(&gather);
    gather_whole(&gather, &band);
    if (rank == 0)
        before = sum_of(gather.whole, &absolute);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (long now = 0; now < steps; now++) {
        step(&band, now % 2, insulated);
        if (gather_every > 0 && (now + 1) % gather_every == 0)
            gather_begin(&gather, &band);
    }
    gather_whole(&gather, &band);
    double seconds = MPI_Wtime() - begin, drift = 0.0, drift_max = 4.0 * DBL_EPSILON * absolute * (steps + 1);
    uint64_t hash = 0;
    if (rank == 0) {
        hash = hash_of(gather.whole);
        drift = fabs(sum_of(gather.whole, &ignored) - before);
    }
    drop(&band);

    /* A short run of its own with a start whose decay is known exactly. */
    long mode_steps = steps < 500 ? steps : 500;
    make(&band, 1);
    for (long now = 0; now < mode_steps; now++)
        step(&band, now % 2, 0);
    gather_whole(&gather, &band);
    int all = nodes(), wrong = 0;
    if (rank == 0) {
        double error = mode_error(gather.whole, mode_steps);
        wrong = !(error <= 1e-12) || (insulated && !(drift <= drift_max));
        char sum[100] = "\"sum_drift\":null,\"sum_drift_max\":null";
        if (insulated)
            snprintf(sum, sizeof sum, "\"sum_drift\":%.17g,\"sum_drift_max\":%.17g", drift, drift_max);
        double rate = seconds > 0.0 ? (double)rows * columns * steps / seconds : 0.0;
        if (json)
            printf("{\"program\":\"heat\",\"width\":%d,\"height\":%d,\"steps\":%ld,\"r\":%.17g,\"ranks\":%d,\"nodes\":%d,"
                   "\"decomposition\":[%d,1],\"seconds\":%.9g,\"cells_per_second\":%.9g,\"hash\":\"%016llx\","
                   "\"traffic\":[],\"verification\":{\"mode_error\":%.17g,\"mode_steps\":%ld,%s},\"png\":null,"
                   "\"gif\":null}\n",
                   columns, rows, steps, r, size, all, size, seconds, rate, (unsigned long long)hash, error,
                   mode_steps, sum);
        else
            printf("%dx%d cells, %ld steps, %d ranks on %d nodes: %.3f s, %.0f Mcells/s\nfield %016llx\n"
                   "slowest mode off its exact decay by %.1e after %ld steps\nverification %s\n",
                   columns, rows, steps, size, all, seconds, rate / 1e6, (unsigned long long)hash, error, mode_steps,
                   wrong ? "FAILED" : "passed");
    }
    drop(&band);
    gather_drop(&gather);
    MPI_Bcast(&wrong, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return wrong;
}
