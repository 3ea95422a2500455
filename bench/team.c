#include "team.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

#define MAX_THREADS 1024

static struct {
    int n_threads, n_active;
    team_work *work; /* NULL: end */
    void *context;
    pthread_barrier_t barrier;
    pthread_t threads[MAX_THREADS];
    int64_t begin[MAX_THREADS], end[MAX_THREADS];
} team;

int team_allowed_cpus(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return 1;
    int n = CPU_COUNT(&allowed);
    return n < MAX_THREADS ? n : MAX_THREADS;
}

/* The CPU of the k-th bit of what is allowed. */
static int nth_cpu(const cpu_set_t *allowed, int k)
{
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, allowed) && k-- == 0)
            return cpu;
    return -1;
}

static void pin(pthread_t thread, const cpu_set_t *allowed, int k)
{
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(nth_cpu(allowed, k % CPU_COUNT(allowed)), &own);
    if (pthread_setaffinity_np(thread, sizeof own, &own) != 0)
        fprintf(stderr, "kernel_bench: thread %d is not pinned\n", k);
}

/* One round of work; false at the end. What to do is read between the barriers only: afterwards the
 * first thread may already have set the next round. */
static bool take_part(int thread)
{
    pthread_barrier_wait(&team.barrier);
    bool is_work = team.work != NULL;
    team.begin[thread] = clock_ns();
    if (is_work && thread < team.n_active)
        team.work(team.context, thread, team.n_active);
    team.end[thread] = clock_ns();
    pthread_barrier_wait(&team.barrier);
    return is_work;
}

static void *thread_main(void *number)
{
    while (take_part((int)(intptr_t)number))
        continue;
    return NULL;
}

void team_start(int n_threads)
{
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof allowed, &allowed);
    team.n_threads = n_threads < MAX_THREADS ? n_threads : MAX_THREADS;
    pthread_barrier_init(&team.barrier, NULL, (unsigned)team.n_threads);
    team.threads[0] = pthread_self();
    for (int i = 0; i < team.n_threads; i++) {
        if (i > 0 &&
            pthread_create(&team.threads[i], NULL, thread_main, (void *)(intptr_t)i) != 0) {
            fprintf(stderr, "kernel_bench: cannot start thread %d\n", i);
            exit(1);
        }
        pin(team.threads[i], &allowed, i);
    }
}

int64_t team_run(team_work *work, void *context, int n_threads)
{
    team.work = work;
    team.context = context;
    team.n_active = n_threads < team.n_threads ? n_threads : team.n_threads;
    take_part(0);
    int64_t first = team.begin[0], last = team.end[0];
    for (int i = 1; i < team.n_active; i++) {
        first = team.begin[i] < first ? team.begin[i] : first;
        last = team.end[i] > last ? team.end[i] : last;
    }
    return last - first;
}

void team_stop(void)
{
    team_run(NULL, NULL, 0);
    for (int i = 1; i < team.n_threads; i++)
        pthread_join(team.threads[i], NULL);
    pthread_barrier_destroy(&team.barrier);
}
