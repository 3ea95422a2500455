/* Where pages lie, as the kernel tells it. */
#include <inttypes.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "machine/node_memory.h"

/* Pages per question to the kernel. */
#define BATCH 256

bool pages_where(const void *const *pages, int n, int *nodes)
{
    for (int i = 0; i < n; i++)
        nodes[i] = -1;
#ifdef SYS_move_pages
    /* Without a list of destinations move_pages moves nothing: it tells the node of each page, or a
     * negative errno (ENOENT: never touched). */
    if (syscall(SYS_move_pages, 0, (unsigned long)n, pages, NULL, nodes, 0) == 0) {
        for (int i = 0; i < n; i++)
            nodes[i] = nodes[i] < 0 ? -1 : nodes[i];
        return true;
    }
    for (int i = 0; i < n; i++)
        nodes[i] = -1;
#endif
    return false;
}

static void count_batch(struct page_report *report, const void *const *pages, int n,
                        int memory_node)
{
    int nodes[BATCH];
    report->is_known |= pages_where(pages, n, nodes);
    report->n_sampled += (uint64_t)n;
    for (int i = 0; i < n; i++) {
        report->n_right += nodes[i] == memory_node;
        report->n_absent += nodes[i] < 0;
    }
}

void page_report_add(struct page_report *report, const void *begin, uint64_t bytes, int memory_node,
                     uint64_t max_samples)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)begin & ~(page_bytes - 1);
    uint64_t n_pages = bytes ? ((uintptr_t)begin + bytes - first + page_bytes - 1) / page_bytes : 0;
    uint64_t n_samples = n_pages < max_samples ? n_pages : max_samples;
    const void *pages[BATCH];
    int n = 0;
    for (uint64_t i = 0; i < n_samples; i++) {
        uint64_t page = i * n_pages / n_samples;
        pages[n++] = (const void *)(first + page * page_bytes);
        if (n == BATCH || i + 1 == n_samples) {
            count_batch(report, pages, n, memory_node);
            n = 0;
        }
    }
}

int64_t pages_migrated(void)
{
    FILE *f = fopen("/proc/vmstat", "r");
    if (!f)
        return -1;
    char line[128];
    int64_t n = -1;
    while (n < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "numa_pages_migrated %" SCNd64, &n) != 1)
            n = -1;
    fclose(f);
    return n;
}
