/* mpi_allreduce.c: the ranks of an MPI job for `argand bench dist`; compiled with mpicc when the bench runs.
 *
 * Rank 0 reads commands and hands them on through a fifo for each other rank, in the folder given as the argument: who waits for
 * a command sleeps in read, whereas a rank that waits in MPI spins. Commands and answers: dist_rank.lua.
 */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PERIOD         61
#define NUM_SPOTS      4
#define MAX_LINE       256
#define MAX_PATH       4096
#define MAX_SIZE       1024
#define FRESH          100
#define MAX_ITERATIONS 100000

static int rank, size;
static FILE *others[MAX_SIZE]; /* rank 0: the fifo of each other rank */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what) {
    perror(what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The commands of this rank. */
static FILE *open_commands(const char *folder) {
    char path[MAX_PATH];
    FILE *own = stdin;
    snprintf(path, sizeof path, "%s/mpi.%d", folder, rank);
    if (rank && mkfifo(path, 0600) != 0) fail(path);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank && !(own = fopen(path, "r"))) fail(path);
    for (int i = 1; rank == 0 && i < size; i++) {
        snprintf(path, sizeof path, "%s/mpi.%d", folder, i);
        if (!(others[i] = fopen(path, "w"))) fail(path);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank) unlink(path);
    return own;
}

static void hand_on(const char *line) {
    for (int i = 1; i < size; i++) {
        fputs(line, others[i]);
        fflush(others[i]);
    }
}

static long wrong_of(const float *out, long count, float scale) {
    long wrong = 0;
    for (long i = 0; i < count; i++) wrong += out[i] != scale * (float)(1 + i % PERIOD);
    return wrong;
}

static void choose_spots(long *spots, long count, int step) {
    spots[0] = 0;
    spots[1] = count - 1;
    spots[2] = (long)((step * 2654435761UL) % (unsigned long)count);
    spots[3] = (long)((step * 40503UL + 12345UL) % (unsigned long)count);
}

static void wait_together(double lead_s) {
    double own = now() + lead_s, start = 0;
    MPI_Allreduce(&own, &start, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    while (now() < start) {}
}

/* Returns how many elements were wrong; times [2 * iterations] get start and end of each iteration. */
static long sample(float *in, float *out, long count, int iterations, double lead_s, double *times) {
    float sum = (float)size * (float)(size + 1) / 2, own = (float)(rank + 1);
    for (long i = 0; i < count; i++) in[i] = own * (float)(1 + i % PERIOD), out[i] = -1;
    MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    long wrong = wrong_of(out, count, sum), spots[NUM_SPOTS];
    for (int step = 1; step <= iterations; step++) {
        choose_spots(spots, count, step);
        for (int i = 0; i < NUM_SPOTS && step < iterations; i++)
            in[spots[i]] = own * (float)(FRESH + (spots[i] + step) % PERIOD);
        if (lead_s > 0) wait_together(lead_s);
        times[2 * step - 2] = now();
        MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        times[2 * step - 1] = now();
        for (int i = 0; i < NUM_SPOTS && step < iterations; i++) {
            wrong += out[spots[i]] != sum * (float)(FRESH + (spots[i] + step) % PERIOD);
            in[spots[i]] = own * (float)(1 + spots[i] % PERIOD);
        }
    }
    return wrong + wrong_of(out, count, sum);
}

/* Rank 0 answers for all: the first start and the last end of each iteration. */
static void answer(const double *times, int iterations, long wrong) {
    long total = 0;
    MPI_Reduce(&wrong, &total, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("ok %ld", total);
    for (int i = 0; i < iterations; i++) {
        double first = 0, last = 0;
        MPI_Reduce(&times[2 * i], &first, 1, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
        MPI_Reduce(&times[2 * i + 1], &last, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0) printf(" %.9f %.9f", first, last);
    }
    if (rank == 0) printf("\n");
    fflush(stdout);
}

static void serve(FILE *commands) {
    char line[MAX_LINE];
    float *in = NULL, *out = NULL;
    long held = 0;
    while (fgets(line, sizeof line, commands)) {
        long count;
        int iterations, lead_us;
        if (rank == 0) hand_on(line);
        if (sscanf(line, "%*s %ld %d %d", &count, &iterations, &lead_us) != 3 || count < 1 || count > 1L << 30 ||
            iterations < 1 || iterations > MAX_ITERATIONS)
            break;
        if (count != held) {
            free(in);
            free(out);
            in = malloc((size_t)count * sizeof *in);
            out = malloc((size_t)count * sizeof *out);
            held = count;
        }
        double *times = malloc(2 * (size_t)iterations * sizeof *times);
        if (!in || !out || !times) fail("malloc");
        long wrong = sample(in, out, count, iterations, lead_us / 1e6, times);
        answer(times, iterations, wrong);
        free(times);
    }
    free(in);
    free(out);
}

int main(int argc, char **argv) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int len;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 2 || size > MAX_SIZE) MPI_Abort(MPI_COMM_WORLD, 2);
    FILE *commands = open_commands(argv[1]);
    MPI_Get_library_version(version, &len);
    version[strcspn(version, ",\n")] = '\0';
    if (rank == 0) printf("ready %s\n", version);
    fflush(stdout);
    serve(commands);
    for (int i = 1; rank == 0 && i < size; i++) fclose(others[i]);
    MPI_Finalize();
    return 0;
}
