/* transport_test.c: the shared-memory transport, over threads and over processes, against the serial reference, bit by bit.
 *
 *   transport_test [threads | processes | large | all [stride]]
 *
 * all (the default) is threads and processes. stride: only every so many cases of the matrix are run (default 1). large moves
 * more than 2^31 elements and needs 9 GiB. A failing line tells the case or the seed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/transport_cases.h"

int main(int argc, char **argv) {
    const char *part = argc > 1 ? argv[1] : "all";
    int64_t stride = argc > 2 ? strtoll(argv[2], NULL, 10) : 1;
    bool is_all = strcmp(part, "all") == 0;
    if (stride < 1) return 2;
    if (strcmp(part, "large") == 0)
        test_large();
    else if (!is_all && strcmp(part, "threads") != 0 && strcmp(part, "processes") != 0)
        return 2;
    /* Processes first: forking is for a process without threads. */
    if (is_all || strcmp(part, "processes") == 0) test_processes(stride);
    if (is_all || strcmp(part, "threads") == 0) test_threads(stride);
    return num_failures > 0;
}
